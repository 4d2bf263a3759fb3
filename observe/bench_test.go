package observe_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

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
