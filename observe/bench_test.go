package observe_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
)

func quietly(cfg observe.LogConfig) func(context.Context, *ratelimit.Event) {
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return observe.LogDenials(cfg)
}

// BenchmarkObserved compares the middleware with and without LogDenials: on requests that are allowed, and in
// a flood of denials of one key.
func BenchmarkObserved(b *testing.B) {
	limits := map[string]ratelimit.Limit{"allowed": ratelimit.PerSecond(1_000_000), "denied": ratelimit.PerDay(1)}
	mounts := map[string]func(func(http.Handler) http.Handler) http.Handler{
		"plain": func(limit func(http.Handler) http.Handler) http.Handler { return limit(okHandler) },
		"chi": func(limit func(http.Handler) http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Use(limit)
			r.Get("/items/{id}", okHandler)
			return r
		},
	}
	for _, mount := range []string{"plain", "chi"} {
		for _, decision := range []string{"allowed", "denied"} {
			for _, observe := range []func(context.Context, *ratelimit.Event){nil, quietly(observe.LogConfig{})} {
				b.Run(fmt.Sprintf("%s/%s/observed=%t", mount, decision, observe != nil), func(b *testing.B) {
					l := ratelimit.Must(ratelimit.New(ratelimit.Config{Observe: observe}))
					defer l.Close()
					h := mounts[mount](l.Limit(perIP("api", limits[decision])))
					b.ReportAllocs()
					b.RunParallel(func(pb *testing.PB) {
						r := httptest.NewRequest("GET", "/items/5", nil)
						w := ratetest.NewDiscard()
						for pb.Next() {
							clear(w.Header())
							h.ServeHTTP(w, r)
						}
					})
				})
			}
		}
	}
}

// BenchmarkLogDenials measures the observer alone: on an allowed request, on denials of one key, and on those
// of keys that never come again.
func BenchmarkLogDenials(b *testing.B) {
	keys := make([]*ratelimit.Event, 1<<16)
	for i := range keys {
		keys[i] = denial("api", fmt.Sprint("ip:", i))
	}
	for name, events := range map[string][]*ratelimit.Event{"allowed": {by(false)}, "one-key": keys[:1], "many-keys": keys} {
		b.Run(name, func(b *testing.B) {
			observe := quietly(observe.LogConfig{})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ctx := context.Background()
				for i := 0; pb.Next(); i++ {
					observe(ctx, events[i%len(events)])
				}
			})
		})
	}
}

// BenchmarkCounts measures what Counts takes for a request with one or two policies, among 50 routes.
func BenchmarkCounts(b *testing.B) {
	var routes []string
	for i := range 50 {
		routes = append(routes, fmt.Sprintf("GET /items%d/{id}/details", i))
	}
	for _, policies := range []int{1, 2} {
		for _, history := range []bool{false, true} {
			b.Run(fmt.Sprintf("policies=%d/history=%t", policies, history), func(b *testing.B) {
				c := observe.NewCounts(observe.CountsConfig{History: history})
				b.ReportAllocs()
				ctx := decided(b)
				b.RunParallel(func(pb *testing.PB) {
					events := make([]ratelimit.Event, len(routes))
					for i, route := range routes {
						results := []ratelimit.Result{result("api", true), result("per-member", true)}[:policies]
						events[i] = ratelimit.Event{Op: "request", Allowed: true, Route: route, Took: 20 * time.Microsecond, Results: results}
					}
					for i := 0; pb.Next(); i++ {
						c.Observe(ctx, &events[i%len(events)])
					}
				})
			})
		}
	}
}

// decided returns a context that an observer got.
func decided(tb testing.TB) (ctx context.Context) {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Observe: func(got context.Context, _ *ratelimit.Event) { ctx = got }}))
	if _, err := limiter.Take(tb.Context(), ratelimit.Policy{Name: "api", Limit: ratelimit.PerMinute(1)}, "k", 1); err != nil {
		tb.Fatal(err)
	}
	return ctx
}

// BenchmarkTop measures the cost of a request: of new keys, which all take the place of another, of keys whose frequency
// falls as 1/rank, of one key, of new keys that all take the one place that the heaviest keys leave, and of keys that are
// blocked.
func BenchmarkTop(b *testing.B) {
	const many = 1 << 16 // more would measure the memory that the benchmark itself reads
	uniform := make([]string, many)
	for i := range uniform {
		uniform[i] = fmt.Sprint("ip:2001:db8::", i)
	}
	zipf, ranks := make([]string, many), rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, many-1)
	for i := range zipf {
		zipf[i] = uniform[ranks.Uint64()]
	}
	oneIsLeft := make([]string, many)
	for i := range oneIsLeft {
		oneIsLeft[i] = uniform[i]
		if i < many/2 {
			oneIsLeft[i] = uniform[i%127]
		}
	}
	long := make([]string, 1<<12)
	for i := range long {
		long[i] = fmt.Sprint(i, strings.Repeat("k", 240))
	}
	for _, c := range []struct {
		name    string
		keys    []string
		allowed bool
		blocked time.Duration
	}{
		{"new-keys", uniform, true, 0},
		{"new-keys-denied", uniform, false, 0},
		{"zipf", zipf, true, 0},
		{"zipf-denied", zipf, false, 0},
		{"one-key", uniform[:1], true, 0},
		{"one-key-denied", uniform[:1], false, 0},
		{"one-place-left", oneIsLeft, true, 0},
		{"keys-of-240-bytes", long, true, 0},
		{"one-key-blocked", uniform[:1], false, time.Hour},
		{"new-keys-blocked", uniform, false, time.Hour},
	} {
		b.Run(c.name, func(b *testing.B) {
			top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
			for _, key := range c.keys[:len(c.keys)/2] {
				top.Observe(context.Background(), asked("api", key, c.allowed))
			}
			var from atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				ctx, e := context.Background(), asked("api", "", c.allowed)
				e.Results[0].Blocked, e.Results[0].RetryAfter, e.Results[0].ResetAfter = c.blocked > 0, c.blocked, c.blocked
				for i := len(c.keys)/2 + int(from.Add(1<<10)); pb.Next(); i++ {
					e.Results[0].Key = c.keys[i%len(c.keys)]
					top.Observe(ctx, e)
				}
			})
		})
	}
}

// BenchmarkThreshold measures the cost of a request: of keys below the share, of one that was warned of, and of keys for which
// there is no room.
func BenchmarkThreshold(b *testing.B) {
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("ip:2001:db8::", i)
	}
	for _, c := range []struct {
		name string
		keys []string
		used int64
	}{
		{"below", keys, 50},
		{"one-key-above", keys[:1], 90},
		{"many-keys-above", keys, 90},
	} {
		b.Run(c.name, func(b *testing.B) {
			th := ratelimit.Must(observe.NewThreshold(observe.ThresholdConfig{Share: 0.8, Passed: func(context.Context, observe.Warning) {}}))
			defer th.Close()
			for _, key := range c.keys {
				th.Observe(context.Background(), usedOf("api", key, c.used))
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				ctx, e := context.Background(), usedOf("api", "", c.used)
				for i := 0; pb.Next(); i++ {
					e.Results[0].Key = c.keys[i%len(c.keys)]
					th.Observe(ctx, e)
				}
			})
		})
	}
}

// BenchmarkTopLists measures the cost of a list, for which requests wait a small part of the time, and of one key.
func BenchmarkTopLists(b *testing.B) {
	clock := ratetest.NewClock()
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock.Now}))
	for range 6 {
		clock.Advance(time.Minute)
		for i := range 2000 {
			top.Observe(context.Background(), asked("api", fmt.Sprint("ip:2001:db8::", i%400), i%2 == 0))
		}
	}
	b.Run("heaviest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			top.Heaviest("api", 20)
		}
	})
	b.Run("key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			top.Key("api", "ip:2001:db8::0")
		}
	})
}
