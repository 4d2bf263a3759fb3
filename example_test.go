package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// Wrap any http.Handler. The limit holds for all replicas that use the same Redis.
func Example() {
	server, _ := miniredis.Run() // stands for your Redis
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	limiter, err := ratelimit.New(ratelimit.Config{
		Store: redisstore.New(rdb, redisstore.Config{}),
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

	request(handler, "GET", "/")
	request(handler, "GET", "/")
	request(handler, "GET", "/")
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

	request(r, "POST", "/login")
	request(r, "POST", "/login")
	request(r, "GET", "/")
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
	request(export, "GET", "/?format=pdf")
	request(export, "GET", "/?format=pdf")
	request(export, "GET", "/?format=txt")
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
	request(handler, "GET", "/")
	// Output:
	// ip:192.0.2.1 has 59 left
	// GET / 200
}

// Members are counted by the id in their token, guests by address.
func ExampleNew() {
	secret := []byte("32 bytes from a secret manager..")
	members, err := jwtkey.New(jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	if err != nil {
		fmt.Println(err)
		return
	}
	key := ratelimit.FirstOf(members.Claim("memberId"), ratelimit.RemoteIP())

	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(key(r))
	token, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"memberId": 5,
		"exp":      time.Now().Add(time.Hour).Unix(),
	}).SignedString(secret)
	r.Header.Set("Authorization", "Bearer "+token)
	fmt.Println(key(r))
	r.Header.Set("Authorization", "Bearer "+token+"forged")
	fmt.Println(key(r))
	// Output:
	// ip:192.0.2.1 <nil>
	// member:5 <nil>
	// ip:192.0.2.1 <nil>
}

// Behind a load balancer in 10.0.0.0/8. What a client forged stands further left than what the load
// balancer added, and is not reached.
func ExampleClientIP() {
	key := ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.7:4711"
	r.Header.Set("X-Forwarded-For", "203.0.113.99, 198.51.100.5")
	fmt.Println(key(r))
	r.Header.Set("X-Forwarded-For", "203.0.113.99, 2001:db8:1:2:3:4:5:6")
	fmt.Println(key(r))
	// Output:
	// ip:198.51.100.5 <nil>
	// ip:2001:db8:1:2::/64 <nil>
}

func ExampleRoute() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	perRoute := limiter.Limit(ratelimit.Policy{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerMinute(2)})

	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", perRoute(hello))
	request(mux, "GET", "/items/1")
	request(mux, "GET", "/items/2")
	request(mux, "GET", "/items/3")
	// Output:
	// GET /items/1 200
	// GET /items/2 200
	// GET /items/3 429
}

// A mistake: around a ServeMux no route is known yet, so every request is refused, and the error says where
// the limiter belongs. (Under chi's r.Use it would work.)
func ExampleRoute_aroundServeMux() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerMinute(2)}},
		Error: func(w http.ResponseWriter, _ *http.Request, err error) {
			fmt.Println(errors.Is(err, ratelimit.ErrNoKey), err)
			w.WriteHeader(http.StatusForbidden)
		},
	}))
	defer limiter.Close()

	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", hello)
	request(limiter.Handler(mux), "GET", "/items/1")
	// Output:
	// true policy route: ratelimit: no key: the request has not matched a route yet: mount the limiter on the route's handler, not around the router; under a router other than ServeMux and chi, set http.Request.Pattern first, or use another key
	// GET /items/1 403
}

func ExampleJoin() {
	// A bucket for each client on each route.
	key := ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) { fmt.Println(key(r)) })
	request(mux, "GET", "/items/1")
	// Output:
	// join:ip:192.0.2.1|route:GET /items/{id} <nil>
	// GET /items/1 200
}

func ExampleParseLimit() {
	for _, text := range []string{"60/1m", "60/m burst 10", "1/30d", "60 per minute"} {
		limit, err := ratelimit.ParseLimit(text)
		fmt.Println(limit, err)
	}
	// Output:
	// 60/1m <nil>
	// 60/1m burst 10 <nil>
	// 1/720h <nil>
	// 0/0s ratelimit: limit "60 per minute": must be like "60/1m" or "60/1m burst 10"
}

// chi's middleware finds the client's address, and the limiter counts by it.
func ExampleIPConfig_chi() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.ClientIP(ratelimit.IPConfig{Context: middleware.GetClientIPAddr}),
			Limit: ratelimit.PerHour(1),
		}},
	}))
	defer limiter.Close()
	r := chi.NewRouter()
	r.Use(middleware.ClientIPFromXFF("10.0.0.0/8"), limiter.Handler)
	r.Handle("/", hello)

	request(r, "GET", "/", "X-Forwarded-For", "192.0.2.1") // the peer is none of ours: it is the client
	request(r, "GET", "/", "X-Forwarded-For", "192.0.2.2")
	// Output:
	// GET / 200
	// GET / 429
}
