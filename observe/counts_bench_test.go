package observe_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

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
