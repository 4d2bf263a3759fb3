package conformance

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/outbound"
)

// An API with our own middleware, and how it is called.
type quotaAPI struct {
	*httptest.Server
	mu              sync.Mutex
	served, refused int
}

func newQuotaAPI(t *testing.T, limit ratelimit.Limit) *quotaAPI {
	a := &quotaAPI{}
	limiter := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{{Name: "all", Key: ratelimit.Static("all"), Limit: limit}}})
	handler := limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		a.mu.Lock()
		a.served++
		a.mu.Unlock()
	}))
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		if w.Header().Get("Retry-After") != "" {
			a.mu.Lock()
			a.refused++
			a.mu.Unlock()
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func newOutbound(t *testing.T, p ratelimit.Policy, base http.RoundTripper) *outbound.Transport {
	t.Helper()
	transport, err := outbound.New(outbound.Config{Limiter: newLimiter(t, ratelimit.Config{}), Policy: p, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

func retrying(base http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax = 3
	c.RetryWaitMin, c.RetryWaitMax = 10*time.Millisecond, 50*time.Millisecond
	c.HTTPClient = &http.Client{Transport: base}
	return c
}

func getAll(t *testing.T, c *http.Client, url string, n int) (errs []error) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
			if err != nil {
				panic(err)
			}
			resp, err := c.Do(r)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 {
					err = errors.New(resp.Status)
				}
			}
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errs
}

// Retries outside of the transport: each try is charged, so that no call is refused but those whose quota others used.
func TestRetriesOutsideOfATransport(t *testing.T) {
	t.Parallel()
	a := newQuotaAPI(t, ratelimit.PerSecond(20).WithBurst(10))
	for range 5 { // another client
		resp, err := http.Get(a.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	c := retrying(newOutbound(t, ratelimit.Policy{Name: "api", Limit: ratelimit.PerSecond(20).WithBurst(10)}, nil))
	defer c.HTTPClient.CloseIdleConnections()
	if errs := getAll(t, c.StandardClient(), a.URL, 60); len(errs) > 0 {
		t.Errorf("%d of 60 failed: %v", len(errs), errs[0])
	}
	// At the start, 10 calls are sent before the first response says what is left.
	if a.served != 65 || a.refused > 10 {
		t.Errorf("%d served, want 65; %d refused, want at most 10", a.served, a.refused)
	}
}

// A call that is not sent is an error for the retrying client, which tries again without reaching the server.
func TestARetryOutsideGetsTheErrorOfTheTransport(t *testing.T) {
	t.Parallel()
	a := newQuotaAPI(t, ratelimit.PerMinute(60))
	c := retrying(newOutbound(t, ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(1), MaxWait: time.Millisecond}, nil))
	defer c.HTTPClient.CloseIdleConnections()
	c.ErrorHandler = func(resp *http.Response, err error, _ int) (*http.Response, error) { return resp, err }
	if errs := getAll(t, c.StandardClient(), a.URL, 1); len(errs) > 0 {
		t.Fatal(errs[0])
	}
	errs := getAll(t, c.StandardClient(), a.URL, 1)
	var full *outbound.Error
	if len(errs) != 1 || !errors.As(errs[0], &full) || full.RetryAfter < 50*time.Minute {
		t.Errorf("errors %v, want one that says when", errs)
	}
	if a.served != 1 || a.refused != 0 {
		t.Errorf("%d served, %d refused, want 1 and 0", a.served, a.refused)
	}
}

// Retries inside of the transport are not charged. What responses say is left makes up for them.
func TestRetriesInsideOfATransport(t *testing.T) {
	t.Parallel()
	a := newQuotaAPI(t, ratelimit.PerSecond(20).WithBurst(10))
	inner := retrying(nil)
	defer inner.HTTPClient.CloseIdleConnections()
	c := &http.Client{Transport: newOutbound(t, ratelimit.Policy{Name: "api", Limit: ratelimit.PerSecond(20).WithBurst(10)}, &retryablehttp.RoundTripper{Client: inner})}
	// The first call is retried three times after a failure that the transport does not see.
	tries := 0
	inner.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if tries < 3 && err == nil {
			tries++
			return true, nil
		}
		return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	if errs := getAll(t, c, a.URL, 1); len(errs) > 0 {
		t.Fatal(errs[0])
	}
	inner.CheckRetry = retryablehttp.DefaultRetryPolicy
	if errs := getAll(t, c, a.URL, 40); len(errs) > 0 {
		t.Errorf("%d of 40 failed: %v", len(errs), errs[0])
	}
	if a.served != 44 || a.refused > 2 {
		t.Errorf("%d served, want 44; %d refused, want at most 2", a.served, a.refused)
	}
}
