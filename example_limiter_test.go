package ratelimit_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Without a Store the buckets are in memory.
func ExampleLimiter_Handler() {
	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerMinute(60).WithBurst(2),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	handler := limiter.Handler(hello) // for http.ListenAndServe

	request(handler, "GET", "/")
	request(handler, "GET", "/")
	request(handler, "GET", "/")
	// Output:
	// GET / 200
	// GET / 200
	// GET / 429
}

// Must panics where New returns an error: for variables and for tests.
func ExampleMust() {
	defer func() { fmt.Println(recover()) }()
	ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Limit: ratelimit.PerMinute(60)}},
	}))
	// Output:
	// ratelimit: New: Policies[0] ("api"): Key: must be set, to RemoteIP() for example
}

// The default headers. Beside those shown there is X-RateLimit-Reset, the Unix time at which the bucket is full again.
func ExampleXRateLimit() {
	buckets := memstore.New(memstore.Config{Clock: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.Every(10 * time.Minute)}},
		Headers:  ratelimit.XRateLimit, // the default
	}))
	handler := limiter.Handler(hello)
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After"} {
			fmt.Printf("%s: %q\n", name, w.Header().Get(name))
		}
	}
	// Output:
	// X-RateLimit-Limit: "1"
	// X-RateLimit-Remaining: "0"
	// Retry-After: ""
	// X-RateLimit-Limit: "1"
	// X-RateLimit-Remaining: "0"
	// Retry-After: "600"
}

// A mail counts for the member and for the organisation, or for neither.
func ExampleLimiter_TakeAll() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	perMember := ratelimit.Policy{Name: "mails-member", Limit: ratelimit.PerDay(100)}
	perOrg := ratelimit.Policy{Name: "mails-org", Limit: ratelimit.PerDay(150)}

	for _, member := range []string{"member:1", "member:2"} {
		decision, err := limiter.TakeAll(context.Background(),
			ratelimit.Charge{Policy: perMember, Key: member, Cost: 80},
			ratelimit.Charge{Policy: perOrg, Key: "org:7", Cost: 80},
		)
		fmt.Println(member, decision.Allowed, decision.Denied(), err)
	}
	left, err := limiter.Peek(context.Background(), perMember, "member:2")
	fmt.Println(left.Remaining, err)
	// Output:
	// member:1 true [] <nil>
	// member:2 false [mails-org] <nil>
	// 100 <nil>
}

// Show a member what is left, without taking anything.
func ExampleLimiter_Peek() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	exports := ratelimit.Policy{Name: "exports", Limit: ratelimit.PerDay(10)}
	ctx := context.Background()

	if _, err := limiter.Take(ctx, exports, "member:5", 4); err != nil {
		fmt.Println(err)
	}
	state, err := limiter.Peek(ctx, exports, "member:5")
	fmt.Println(state.Remaining, "of", state.Limit.Rate, err)
	// Output:
	// 6 of 10 <nil>
}

// Take before the work, and give back what was not needed.
func ExampleLimiter_Refund() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	pages := ratelimit.Policy{Name: "pages", Limit: ratelimit.PerHour(100)}
	ctx := context.Background()

	result, err := limiter.Take(ctx, pages, "member:5", 20)
	fmt.Println(result.Allowed, result.Remaining, err)
	result, err = limiter.Refund(ctx, pages, "member:5", 15) // only five were printed
	fmt.Println(result.Remaining, err)
	// Output:
	// true 80 <nil>
	// 95 <nil>
}

// Unlock a member at once, for example after a new password was set by mail.
func ExampleLimiter_Reset() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	logins := ratelimit.Policy{Name: "logins", Limit: ratelimit.Every(15 * time.Minute)}
	ctx := context.Background()

	try := func() {
		result, err := limiter.Take(ctx, logins, "name:ann", 1)
		fmt.Println(result.Allowed, err)
	}
	try()
	try()
	if _, err := limiter.Reset(ctx, logins, "name:ann"); err != nil {
		fmt.Println(err)
	}
	try()
	// Output:
	// true <nil>
	// false <nil>
	// true <nil>
}

// Read a new limit from a configuration file, and use it from the next request on. A malformed one changes nothing.
func ExampleLimiter_Reload() {
	api := ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(2)}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{api}}))
	defer limiter.Close()
	handler := limiter.Handler(hello)
	reload := func(text string) error {
		limit, err := ratelimit.ParseLimit(text)
		if err != nil {
			return err
		}
		api.Limit = limit
		return limiter.Reload(api)
	}

	request(handler, "GET", "/")
	fmt.Println(reload("1/hour"))
	request(handler, "GET", "/") // the token that was left
	request(handler, "GET", "/")
	fmt.Println(reload("many"))
	// Output:
	// GET / 200
	// <nil>
	// GET / 200
	// GET / 429
	// ratelimit: limit "many": must be like "60/1m" or "60/1m burst 10"
}
