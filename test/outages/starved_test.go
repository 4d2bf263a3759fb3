//go:build long

package outages_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// Handlers that take all the processor time make timers overtake the answers of a Redis that is well. Clients can
// cause such load, and must not get past their limits by it.
func TestWantOfProcessorTimeIsNoOutage(t *testing.T) {
	buckets := openStore(t, redistest.Start(t).Client())
	backed, changes := withFallback(t, buckets, fallback.Config{})
	for name, s := range map[string]store.Store{"plain": buckets, "fallback": backed} {
		t.Run(name, func(t *testing.T) {
			limiter, err := ratelimit.New(ratelimit.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			const addresses, each, requests, senders, work = 100, 3, 3000, 64, 20 * time.Millisecond
			var sent, served, refused atomic.Int64
			login := ratelimit.Policy{Name: name, Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(each)}
			h := limiter.Limit(login)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				served.Add(1)
				for end := time.Now().Add(work); time.Now().Before(end); {
				}
			}))
			var running sync.WaitGroup
			for range senders {
				running.Go(func() {
					for n := sent.Add(1); n <= requests; n = sent.Add(1) {
						r := httptest.NewRequest("POST", "/login", nil)
						r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1234", n%addresses)
						w := httptest.NewRecorder()
						h.ServeHTTP(w, r)
						if w.Code == http.StatusServiceUnavailable {
							refused.Add(1)
						}
					}
				})
			}
			running.Wait()
			const most = addresses * each
			t.Logf("%d served, %d may be, %d refused for want of processor time", served.Load(), most, refused.Load())
			if 100*served.Load() > 101*most {
				t.Errorf("%d served, %d may be", served.Load(), most)
			}
			if 10*refused.Load() > requests {
				t.Errorf("%d of %d refused for want of processor time", refused.Load(), requests)
			}
		})
	}
	if len(changes.all) > 0 {
		t.Errorf("the breaker opened: %v", changes.all)
	}
}
