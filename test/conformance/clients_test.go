package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
)

// A client is an HTTP client set up to obey Retry-After. Whatever it waits besides that is set to next to
// nothing: its patience comes from our header alone.
type client struct {
	name string
	make func(t *testing.T, retries int) getter
}

// A getter sends a GET, repeats it if it is refused, and returns the last status.
type getter func(ctx context.Context, url string) (status int, err error)

var clients = []client{
	{"retryablehttp", newRetryable},
	{"resty", newResty},
	{"a loop over http.Client", newLoop},
}

// newRetryable needs no setting: the client retries a 429 and obeys Retry-After by itself, 4 times by
// default, and waits from one second on if there is no Retry-After.
func newRetryable(t *testing.T, retries int) getter {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax = retries
	c.RetryWaitMin, c.RetryWaitMax = time.Millisecond, time.Millisecond
	t.Cleanup(c.HTTPClient.CloseIdleConnections)
	return func(ctx context.Context, url string) (int, error) {
		r, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, err
		}
		resp, err := c.Do(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
}

// newResty needs all of these: by default the client does not retry, does not take a 429 for a reason to,
// does not read Retry-After, and cuts it down to two seconds.
func newResty(t *testing.T, retries int) getter {
	c := resty.New().
		SetLogger(quiet{}).
		SetRetryCount(retries).
		SetRetryWaitTime(time.Millisecond).
		SetRetryMaxWaitTime(time.Hour).
		AddRetryAfterErrorCondition().
		SetRetryAfter(func(_ *resty.Client, r *resty.Response) (time.Duration, error) {
			after, ok := retryAfter(r.Header())
			if !ok {
				return 0, errNotToBeRetried
			}
			return after, nil
		})
	t.Cleanup(c.GetClient().CloseIdleConnections)
	return func(ctx context.Context, url string) (int, error) {
		resp, err := c.R().SetContext(ctx).Get(url)
		return resp.StatusCode(), err
	}
}

// errNotToBeRetried ends resty's retries. A wait of 0 would have it choose one.
var errNotToBeRetried = errors.New("refused, and not for now")

// quiet is a logger of resty's.
type quiet struct{}

func (quiet) Errorf(string, ...any) {}
func (quiet) Warnf(string, ...any)  {}
func (quiet) Debugf(string, ...any) {}

func newLoop(t *testing.T, retries int) getter {
	c := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return func(ctx context.Context, url string) (int, error) {
		for left := retries; ; left-- {
			status, header, err := get(ctx, c, url)
			after, again := retryAfter(header)
			if err != nil || status != http.StatusTooManyRequests || !again || left == 0 {
				return status, err
			}
			select {
			case <-time.After(after):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
}

func get(ctx context.Context, c *http.Client, url string) (int, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, nil, fmt.Errorf("read the body: %w", err)
	}
	return resp.StatusCode, resp.Header, nil
}

func retryAfter(h http.Header) (time.Duration, bool) {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, err == nil
}
