package observe_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

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

	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
	// Output:
	// GET / 200
	// level=INFO msg="ratelimit: denied" policy=api key=ip:192.0.2.1 route="" limit=1/1h cost=1 shadow=false degraded=false denials_not_logged=0
	// GET / 429
	// GET / 429
}

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
	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
	fmt.Println(counts)
	// Output:
	// GET / 200
	// level=INFO msg="ratelimit: denied" policy=api key=ip:192.0.2.1 route="" limit=1/1h cost=1 shadow=false degraded=false denials_not_logged=0
	// GET / 429
	// map[false:1 true:1]
}

// Name the owners of API keys, whose keys are hashes. Set LogConfig.Names, and the Names of the admin page, to names.
func ExampleNewNames() {
	customers := map[string]string{"5f2a": "ACME"} // stands for your database
	names := ratelimit.Must(observe.NewNames(func(ctx context.Context, policy, key string) (string, error) {
		hash, _ := strings.CutPrefix(key, "header:x-api-key:")
		return customers[hash], nil
	}, observe.NamesConfig{}))
	for names.Name("api", "header:x-api-key:5f2a") == "" { // at once, and so without a name at first
		time.Sleep(time.Millisecond)
	}
	fmt.Println(names.Name("api", "header:x-api-key:5f2a"))
	// Output: ACME
}

// Find the keys that a limit hits.
func ExampleTop() {
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	limiter, err := ratelimit.New(ratelimit.Config{Observe: top.Observe})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	api := ratelimit.Policy{Name: "api", Limit: ratelimit.PerMinute(2)}
	for range 5 {
		limiter.Take(context.Background(), api, "member:5", 1)
	}
	limiter.Take(context.Background(), api, "member:6", 1)

	for _, k := range top.Heaviest("api", 10).Keys {
		fmt.Printf("%s: %d requests (%.0f %%), %d denied\n", k.Key, k.Requests, k.Share*100, k.Denied)
	}
	// Output:
	// member:5: 5 requests (83 %), 3 denied
	// member:6: 1 requests (17 %), 0 denied
}

// List the keys that are blocked, and count those that are limited now.
func ExampleTop_Blocked() {
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	limiter, err := ratelimit.New(ratelimit.Config{Observe: top.Observe})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	api := ratelimit.Policy{Name: "api", Limit: ratelimit.PerMinute(2)}
	limiter.Block(context.Background(), api, "member:5", time.Hour, "alice: scrapes prices")
	for _, key := range []string{"member:5", "member:6", "member:6", "member:6"} {
		limiter.Take(context.Background(), api, key, 1)
	}

	for _, b := range top.Blocked() {
		fmt.Printf("%s: blocked for another %v\n", b.Key, time.Until(b.Until).Round(time.Minute))
	}
	fmt.Println(top.Limited().Count(), "keys are limited")
	// Output:
	// member:5: blocked for another 1h0m0s
	// 2 keys are limited
}

// Warn of customers that have used 80 percent of their month.
func ExampleThreshold() {
	warnings := ratelimit.Must(observe.NewThreshold(observe.ThresholdConfig{
		Share: 0.8,
		Passed: func(_ context.Context, w observe.Warning) {
			fmt.Printf("mail to %s: you have used %d of %d requests of this month\n", w.Key, w.Used, w.Limit.Rate)
		},
	}))
	limiter, err := ratelimit.New(ratelimit.Config{Observe: warnings.Observe})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	plan := ratelimit.Policy{Name: "plan", Limit: ratelimit.Quota(1000, ratelimit.Month)}
	for range 900 {
		limiter.Take(context.Background(), plan, "account:7", 1)
	}
	limiter.Take(context.Background(), plan, "account:8", 500)
	warnings.Close()
	// Output:
	// mail to account:7: you have used 800 of 1000 requests of this month
}

// Find the lines of an address in a log with a KeySecret.
func ExampleKeyName() {
	fmt.Println(observe.KeyName([]byte("a secret of 16 bytes or more"), "ip:192.0.2.1"))
	// Output:
	// hmac:66ffd7661dac2dd9
}
