package conformance

import (
	"net/http"
	"sync/atomic"
	"testing"

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
