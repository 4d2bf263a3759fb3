package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func ExampleLimit() {
	fmt.Println(ratelimit.PerMinute(60))                                     // 60 at once, and one a second
	fmt.Println(ratelimit.PerMinute(60).WithBurst(10))                       // 10 at once, and one a second
	fmt.Println(ratelimit.Limit{Rate: 1000, Per: 7 * 24 * time.Hour})        // 1000 a week
	fmt.Println(ratelimit.Every(15 * time.Minute).WithBurst(5))              // 5 at once, and one every 15 minutes
	fmt.Println(ratelimit.Limit{Rate: 80, Per: 15 * time.Minute, Burst: 20}) // at most 100 in any 15 minutes
	// Output:
	// 60/1m
	// 60/1m burst 10
	// 1000/168h
	// 1/15m burst 5
	// 80/15m burst 20
}

func ExampleParseLimit() {
	for _, text := range []string{"60/1m", "60/m burst 10", "1/30d", "100000 per month", "60 for a minute"} {
		limit, err := ratelimit.ParseLimit(text)
		fmt.Println(limit, err)
	}
	// Output:
	// 60/1m <nil>
	// 60/1m burst 10 <nil>
	// 1/720h <nil>
	// 100000 per month <nil>
	// 0/0s ratelimit: limit "60 for a minute": must be like "60/1m", "60/1m burst 10", "1000 per month" or "3 at once"
}

// Two at once, then one every 15 minutes.
func ExampleEvery() {
	now := time.Unix(1_800_000_000, 0)
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return now }}))
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets}))
	attempts := ratelimit.Policy{Name: "attempts", Limit: ratelimit.Every(15 * time.Minute).WithBurst(2)}

	for range 5 {
		result, err := limiter.Take(context.Background(), attempts, "name:ann", 1)
		fmt.Println(now.UTC().Format("15:04"), result.Allowed, result.RetryAfter, err)
		now = now.Add(6 * time.Minute)
	}
	// Output:
	// 08:00 true 0s <nil>
	// 08:06 true 0s <nil>
	// 08:12 false 3m0s <nil>
	// 08:18 true 0s <nil>
	// 08:24 false 6m0s <nil>
}

// A plan of three requests a month, by the calendar of Berlin, in the last hours of November.
func ExampleQuota() {
	now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return now }}))
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets}))
	plan := ratelimit.Policy{Name: "plan", Limit: ratelimit.Quota(3, ratelimit.Month).In("Europe/Berlin")}

	for range 5 {
		result, err := limiter.Take(context.Background(), plan, "member:5", 1)
		fmt.Println(now.Format(time.DateTime), result.Allowed, result.Remaining, result.RetryAfter, err)
		now = now.Add(30 * time.Minute)
	}
	// Output:
	// 2026-11-30 21:00:00 true 2 0s <nil>
	// 2026-11-30 21:30:00 true 1 0s <nil>
	// 2026-11-30 22:00:00 true 0 0s <nil>
	// 2026-11-30 22:30:00 false 0 30m0s <nil>
	// 2026-11-30 23:00:00 true 2 0s <nil>
}

// The limit of an API key depends on its plan. An unknown plan has Policy.Limit.
func ExamplePolicy_limitFunc() {
	plans := map[string]ratelimit.Limit{
		"pro":      ratelimit.PerMinute(600).WithBurst(100),
		"internal": ratelimit.Unlimited,
		"blocked":  ratelimit.PerDay(0),
	}
	planOf := map[string]string{"key-1": "pro", "key-2": "internal", "key-3": "blocked"} // stands for your accounts
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.Header("X-Api-Key"),
			Limit: ratelimit.PerMinute(60).WithBurst(10),
			LimitFunc: func(r *http.Request) ratelimit.Limit {
				return plans[planOf[r.Header.Get("X-Api-Key")]]
			},
		}},
	}))
	defer limiter.Close()
	handler := limiter.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, ok := ratelimit.FromContext(r.Context()); ok {
			fmt.Println(d.Results[0].Limit)
		}
	}))
	for _, key := range []string{"key-0", "key-1", "key-2", "key-3"} {
		printResponse(handler, "GET", "/", "X-Api-Key", key)
	}
	// Output:
	// 60/1m burst 10
	// GET / 200
	// 600/1m burst 100
	// GET / 200
	// GET / 200
	// GET / 429
}

// A shadow denies nothing. The observer reports what it would have denied.
func ExamplePolicy_shadow() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:   "candidate",
			Key:    ratelimit.RemoteIP(),
			Limit:  ratelimit.PerMinute(1),
			Shadow: true,
		}},
		Observe: func(_ context.Context, e *ratelimit.Event) { fmt.Println("would have denied:", e.ShadowDenied()) },
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)
	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
	// Output:
	// would have denied: []
	// GET / 200
	// would have denied: [candidate]
	// GET / 200
}

// Overrides are above the limits of the program, until they are left out.
func ExampleLimiter_Override() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()

	err := limiter.Override([]ratelimit.Override{
		{Policy: "api", Limit: ratelimit.PerMinute(120)},
		{Policy: "api", Key: "ip:192.0.2.7", Limit: ratelimit.Quota(100_000, ratelimit.Month), Why: "pays for more"},
	})
	fmt.Println(limiter.Policies()[0].Limit, limiter.ProgramLimits(), err)
	bucket, err := limiter.Peek(context.Background(), ratelimit.Policy{Name: "api"}, "ip:192.0.2.7")
	fmt.Println(bucket.Limit, err)

	err = limiter.Reload(ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(80)})
	fmt.Println(limiter.Policies()[0].Limit, limiter.ProgramLimits(), err)

	err = limiter.Override(nil)
	fmt.Println(limiter.Policies()[0].Limit, err)
	// Output:
	// 120/1m map[api:[60/1m]] <nil>
	// 100000 per month <nil>
	// 120/1m map[api:[80/1m]] <nil>
	// 80/1m <nil>
}
