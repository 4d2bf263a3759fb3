package conformance

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/go-tokenbucket/ratelimit"
)

// counted serves a limit, and counts the requests that come.
func counted(t *testing.T, p ratelimit.Policy) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	limited := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}}).Handler(okHandler)
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		limited.ServeHTTP(w, r)
	})), requests
}

// never is a policy that no request can satisfy, and that therefore sends no Retry-After.
func never() ratelimit.Policy {
	p := everybody(ratelimit.PerSecond(1))
	p.Cost = func(*http.Request) int64 { return 2 }
	return p
}

// A client that knows what to make of it ends at once, and one that does not when its retries do.
func TestClientsEndWhereThereIsNoRetryAfter(t *testing.T) {
	t.Parallel()
	const retries = 3
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url, requests := counted(t, never())
			status, err := c.make(t, retries)(t.Context(), url)
			if status == http.StatusOK {
				t.Errorf("status %d, error %v", status, err)
			}
			want := int32(1)
			if c.name == "retryablehttp" {
				want += retries
			}
			if got := requests.Load(); got != want {
				t.Errorf("%d requests, want %d", got, want)
			}
		})
	}
}

// What newRetryable and newResty say of defaults.
func TestWhatClientsDoByDefault(t *testing.T) {
	t.Parallel()
	slow := everybody(ratelimit.Every(time.Hour))
	for name, c := range map[string]struct {
		get  func(url string) (status int)
		want int32
	}{
		"http.Client does not retry": {want: 1, get: func(url string) int {
			return send(t, url).StatusCode
		}},
		"resty does not retry": {want: 1, get: func(url string) int {
			r, _ := resty.New().R().Get(url)
			return r.StatusCode()
		}},
		"resty does not retry a 429 for a count alone": {want: 1, get: func(url string) int {
			r, _ := resty.New().SetRetryCount(2).R().Get(url)
			return r.StatusCode()
		}},
		"resty retries errors without reading Retry-After": {want: 3, get: func(url string) int {
			r, _ := resty.New().SetRetryCount(2).AddRetryAfterErrorCondition().R().Get(url)
			return r.StatusCode()
		}},
		"resty cuts Retry-After down": {want: 2, get: func(url string) int {
			r, _ := resty.New().SetRetryCount(1).AddRetryAfterErrorCondition().
				SetRetryAfter(func(_ *resty.Client, r *resty.Response) (time.Duration, error) {
					after, _ := retryAfter(r.Header())
					return after, nil
				}).R().Get(url)
			return r.StatusCode()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := counted(t, slow)
			send(t, url)
			requests.Store(0)
			if status := c.get(url); status != http.StatusTooManyRequests {
				t.Errorf("status %d, want 429", status)
			}
			if got := requests.Load(); got != c.want {
				t.Errorf("%d requests, want %d", got, c.want)
			}
		})
	}
	if c := retryablehttp.NewClient(); c.RetryMax != 4 || c.RetryWaitMin != time.Second || c.RetryWaitMax != 30*time.Second {
		t.Errorf("retryablehttp retries %d times, after %v to %v", c.RetryMax, c.RetryWaitMin, c.RetryWaitMax)
	}
}
