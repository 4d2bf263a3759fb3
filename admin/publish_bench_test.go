package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// BenchmarkSnapshot measures what a replica spends every two seconds: a snapshot of 32 policies with full lists of keys, and
// its text.
func BenchmarkSnapshot(b *testing.B) {
	counts, top := observe.NewCounts(observe.CountsConfig{History: true}), ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	var policies []ratelimit.Policy
	for i := range 32 {
		policies = append(policies, ratelimit.Policy{Name: fmt.Sprint("policy-", i), Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(5)})
	}
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: policies}))
	b.Cleanup(func() { l.Close() })
	for i := range 4000 {
		e := ratelimit.Event{Op: "take"}
		for _, p := range policies {
			e.Results = append(e.Results, ratelimit.Result{Policy: p.Name, Key: fmt.Sprint("ip:192.0.", i%200), State: store.State{Allowed: i%2 == 0}})
		}
		counts.Observe(b.Context(), &e)
		top.Observe(b.Context(), &e)
	}
	h := Handler(l, func(*http.Request) (string, Access) { return "", View }, Config{Counts: counts, Top: top}).(*handler)
	b.Run("take", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.takeSnapshot(counts.Snapshot())
		}
	})
	b.Run("encode", func(b *testing.B) {
		s := h.takeSnapshot(counts.Snapshot())
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Encode(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRequest measures requests of a replica with and without a page, which publishes snapshots meanwhile.
func BenchmarkRequest(b *testing.B) {
	server := redistest.Start(b)
	for name, paged := range map[string]bool{"alone": false, "beside a page": true} {
		b.Run(name, func(b *testing.B) {
			counts, top := observe.NewCounts(observe.CountsConfig{History: true}), ratelimit.Must(observe.NewTop(observe.TopConfig{}))
			limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
				Store:    ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{})),
				Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(100_000)}},
				Observe:  observe.Join(counts.Observe, top.Observe),
			}))
			var page http.Handler
			if paged {
				page = Handler(limiter, Loopback, Config{Counts: counts, Top: top})
			}
			h := limiter.Handler(http.NotFoundHandler())
			for i := 0; b.Loop(); i++ {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i%200)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			runtime.KeepAlive(page)
		})
	}
}
