package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

// One export of a customer at a time, and ten a minute. While an export runs, another one is denied, and costs no token.
func ExampleConcurrency() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	customer := ratelimit.Header("X-Api-Key")
	exports := ratelimit.Policy{Name: "exports", Key: customer, Limit: ratelimit.Concurrency(1)}
	perMinute := ratelimit.Policy{Name: "exports-rate", Key: customer, Limit: ratelimit.PerMinute(10)}

	var handler http.Handler
	handler = limiter.Limit(exports, perMinute)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			printResponse(handler, "GET", "/second", "X-Api-Key", "key-1") // while the first runs
			printResponse(handler, "GET", "/other", "X-Api-Key", "key-2")
		}
	}))
	printResponse(handler, "GET", "/first", "X-Api-Key", "key-1")
	printResponse(handler, "GET", "/third", "X-Api-Key", "key-1")
	// Output:
	// GET /second 429
	// GET /other 200
	// GET /first 200
	// GET /third 200
}

// A job holds a slot until it calls release.
func ExampleLimiter_Acquire() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	reports := ratelimit.Policy{Name: "reports", Limit: ratelimit.Concurrency(1)}
	ctx := context.Background()

	release, err := limiter.Acquire(ctx, reports, "customer:7")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = limiter.Acquire(ctx, reports, "customer:7")
	var full *ratelimit.WaitError
	fmt.Println("a second job is denied:", errors.As(err, &full))

	release()
	release() // counts once
	release, err = limiter.Acquire(ctx, reports, "customer:7")
	fmt.Println("after the first:", err)
	release()
	// Output:
	// a second job is denied: true
	// after the first: <nil>
}
