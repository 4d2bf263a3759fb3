package observe_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// Count the requests, and log the denials.
func ExampleJoin() {
	counts := make(map[bool]int) // stands for your metrics
	count := func(_ context.Context, e *ratelimit.Event) {
		if e.Op == "request" { // not a Take or a Peek, and not the "settle" after a request
			counts[e.Allowed]++
		}
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, withoutTime))
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)}},
		Observe:  observe.Join(count, observe.LogDenials(observe.LogConfig{Logger: logger})),
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)
	request(handler, "GET", "/")
	request(handler, "GET", "/")
	fmt.Println(counts)
	// Output:
	// GET / 200
	// level=INFO msg="ratelimit: denied" policy=api key=ip:192.0.2.1 route="" limit=1/1h cost=1 shadow=false degraded=false denials_not_logged=0
	// GET / 429
	// map[false:1 true:1]
}
