package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// Wrap any http.Handler. The limit holds for all replicas that use the same Redis.
func Example() {
	server, _ := miniredis.Run() // stands for your Redis
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	limiter, err := ratelimit.New(ratelimit.Config{
		Store: ratelimit.Must(redisstore.New(rdb, redisstore.Config{})),
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
	handler := limiter.Handler(hello)

	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
	// Output:
	// GET / 200
	// GET / 200
	// GET / 429
}

// Mount the limiter on chi: one limit for everything, and one for a route.
func ExampleLimiter_Limit() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(100)}},
	}))
	defer limiter.Close()
	login := ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(1), FailClosed: true}

	r := chi.NewRouter()
	r.Use(limiter.Handler)
	r.Get("/", hello)
	r.With(limiter.Limit(login)).Post("/login", hello)

	printResponse(r, "POST", "/login")
	printResponse(r, "POST", "/login")
	printResponse(r, "GET", "/")
	// Output:
	// POST /login 200
	// POST /login 429
	// GET / 200
}

func ExampleNew_faults() {
	_, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{
			{Name: "per user", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)},
			{Name: "api", Limit: ratelimit.Limit{Rate: 5}},
		},
		Timeout: -time.Second,
	})
	fmt.Println(err)
	// Output:
	// ratelimit: New: Policies[0] ("per user"): Name: must be 1 to 63 ASCII letters, digits or any of "-._/:"
	// Policies[1] ("api"): Key: must be set, to RemoteIP() for example
	// Policies[1] ("api"): Limit: Per 0s: must be longer than 0
	// Timeout -1s: must not be negative
}

// Decide in a handler that knows more than the request tells.
func ExampleLimiter_Decide() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	exports := ratelimit.Policy{Name: "exports", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerDay(1)}

	export := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") == "pdf" {
			if d, err := limiter.Decide(r, exports); !d.Allowed {
				fmt.Println("no more exports:", d.Denied(), err)
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
		}
		fmt.Fprintln(w, "here you are")
	})
	printResponse(export, "GET", "/?format=pdf")
	printResponse(export, "GET", "/?format=pdf")
	printResponse(export, "GET", "/?format=txt")
	// Output:
	// GET /?format=pdf 200
	// no more exports: [exports] <nil>
	// GET /?format=pdf 429
	// GET /?format=txt 200
}

// In a worker there is no request: the key is given.
func ExampleLimiter_Take() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	mails := ratelimit.Policy{Name: "mails", Limit: ratelimit.PerHour(100)}
	ctx := context.Background()

	result, err := limiter.Take(ctx, mails, "member:5", 80)
	fmt.Println(result.Allowed, result.Remaining, err)
	result, err = limiter.Take(ctx, mails, "member:5", 21)
	fmt.Println(result.Allowed, result.Remaining, err)
	result, err = limiter.Refund(ctx, mails, "member:5", 10) // they were not sent
	fmt.Println(result.Allowed, result.Remaining, err)
	// Output:
	// true 20 <nil>
	// false 20 <nil>
	// true 30 <nil>
}

func ExampleLimiter_Wait() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()

	// What a partner's API allows, to all our workers together.
	partner := ratelimit.Policy{Name: "partner", Limit: ratelimit.PerSecond(100).WithBurst(2)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for job := range 4 {
		if _, err := limiter.Wait(ctx, partner, "partner:7", 1); err != nil {
			return // for a *WaitError, there is no turn within the minute
		}
		fmt.Println("job", job) // the last two 10 and 20 ms after the first
	}
	// Output:
	// job 0
	// job 1
	// job 2
	// job 3
}

func ExampleFromContext() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()
	handler := limiter.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, ok := ratelimit.FromContext(r.Context()); ok {
			fmt.Println(d.Results[0].Key, "has", d.Results[0].Remaining, "left")
		}
	}))
	printResponse(handler, "GET", "/")
	// Output:
	// ip:192.0.2.1 has 59 left
	// GET / 200
}

// A login is limited by the user name, which only the handler finds in the form. What succeeds is given back.
func ExampleLimiter_Admit() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	perUser := ratelimit.Policy{Name: "user", Limit: ratelimit.PerHour(2), FailClosed: true}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := "user:" + r.FormValue("user")
		if !limiter.Admit(w, r, ratelimit.Charge{Policy: perUser, Key: key}) {
			return // it is answered
		}
		if r.FormValue("password") != "sesame" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		if _, err := limiter.Refund(r.Context(), perUser, key, 1); err != nil {
			fmt.Println(err)
		}
		fmt.Fprintln(w, "welcome")
	})
	for _, form := range []string{"user=ann&password=sesame", "user=ann&password=1", "user=ann&password=2", "user=ann&password=sesame", "user=bob&password=sesame"} {
		printResponse(login, "POST", "/login?"+form)
	}
	// Output:
	// POST /login?user=ann&password=sesame 200
	// POST /login?user=ann&password=1 401
	// POST /login?user=ann&password=2 401
	// POST /login?user=ann&password=sesame 429
	// POST /login?user=bob&password=sesame 200
}

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

	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
	printResponse(handler, "GET", "/")
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
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return time.Unix(1_800_000_000, 0) }}))
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

	printResponse(handler, "GET", "/")
	fmt.Println(reload("1/hour"))
	printResponse(handler, "GET", "/") // the token that was left
	printResponse(handler, "GET", "/")
	fmt.Println(reload("many"))
	// Output:
	// GET / 200
	// <nil>
	// GET / 200
	// GET / 429
	// ratelimit: limit "many": must be like "60/1m", "60/1m burst 10", "1000 per month" or "3 at once"
}

// A test asks which limits a login meets, for which keys. The limiter knows that from an earlier login.
func ExampleLimiter_Explain() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()
	login := ratelimit.Policy{Name: "login", Key: ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()), Limit: ratelimit.PerMinute(5)}
	mux := http.NewServeMux()
	mux.Handle("POST /login/{tenant}", limiter.Limit(login)(http.HandlerFunc(hello)))
	app := limiter.Handler(mux)
	app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login/acme", nil))

	r := httptest.NewRequest("POST", "/login/acme", nil)
	r.Pattern = "POST /login/{tenant}"
	e := limiter.Explain(r)
	for _, place := range e.Limiters {
		for _, p := range place.Policies {
			fmt.Println(p.Name, p.Outcome, p.Key, p.Limit, p.Before.Remaining, "to", p.After.Remaining)
		}
	}
	fmt.Println(e.Header["X-Ratelimit-Remaining"], e.Unknown)
	// Output:
	// api allowed ip:192.0.2.1 60/1m 59 to 58
	// login allowed join:ip:192.0.2.1|route:POST /login/{tenant} 5/1m 4 to 3
	// [3] []
}
