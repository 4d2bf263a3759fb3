package observe_test

import (
	"context"
	"expvar"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// Log denied requests, at most one line a minute for each policy and key.
func ExampleLogDenials() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, withoutTime))
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)}},
		Observe:  observe.LogDenials(observe.LogConfig{Logger: logger}),
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)

	request(handler, "GET", "/")
	request(handler, "GET", "/")
	request(handler, "GET", "/")
	// Output:
	// GET / 200
	// level=INFO msg="ratelimit: denied" policy=api key=ip:192.0.2.1 route="" limit=1/1h cost=1 shadow=false degraded=false denials_not_logged=0
	// GET / 429
	// GET / 429
}

// Count the denials of each policy, and log them.
func Example_metrics() {
	logDenials := observe.LogDenials(observe.LogConfig{Logger: slog.New(slog.DiscardHandler)})
	denials := expvar.NewMap("denials") // stands for your metrics
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)}},
		Observe: func(ctx context.Context, e *ratelimit.Event) {
			for _, policy := range e.Denied() {
				denials.Add(policy, 1)
			}
			logDenials(ctx, e)
		},
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)

	request(handler, "GET", "/")
	request(handler, "GET", "/")
	fmt.Println(denials)
	// Output:
	// GET / 200
	// GET / 429
	// {"api": 1}
}
