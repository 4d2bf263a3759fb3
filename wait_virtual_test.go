package ratelimit_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/virtualtime"
)

// A request that waits in virtual time goes on at once, with the headers of one that has waited.
func TestARequestWaitsInVirtualTime(t *testing.T) {
	second := func(ctx context.Context) (headers http.Header, waited, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{{
				Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.Every(2500 * time.Millisecond).WithBurst(1), MaxWait: 5 * time.Second,
			}}})
			h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				d, _ := ratelimit.FromContext(r.Context())
				waited = d.Waited
			}))
			began := time.Now()
			for range 2 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
				headers = w.Header()
			}
			took = time.Since(began)
			l.Close()
		})
		return headers, waited, took
	}
	want, waited, took := second(context.Background())
	if waited != 2500*time.Millisecond || took != waited || want.Get("X-RateLimit-Waited") == "" {
		t.Fatalf("in real time it waited %v and took %v, with %v", waited, took, want)
	}
	got, waited, took := second(virtualtime.With(context.Background(), func(time.Duration) {}))
	if waited != 2500*time.Millisecond || took != 0 {
		t.Errorf("in virtual time it waited %v and took %v", waited, took)
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("headers in virtual time %v, want %v", got, want)
	}
}
