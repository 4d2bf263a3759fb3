package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// IPv6 clients are counted by /64, because one client has that many addresses.
func ExampleRemoteIP() {
	key := ratelimit.RemoteIP()
	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(key(r))
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:1234"
	fmt.Println(key(r))
	// Output:
	// ip:192.0.2.1 <nil>
	// ip:2001:db8:1:2::/64 <nil>
}

// The value of the header is hashed. A request without it has no key.
func ExampleHeader() {
	key := ratelimit.Header("X-Api-Key")
	r := httptest.NewRequest("GET", "/", nil)
	_, err := key(r)
	fmt.Println(errors.Is(err, ratelimit.ErrNoKey))
	r.Header.Set("X-Api-Key", "secret")
	fmt.Println(key(r))
	// Output:
	// true
	// header:x-api-key:K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols <nil>
}

// One bucket for all clients together, beside one for each client. A request that one of them denies takes nothing
// from the other.
func ExampleStatic() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{
			{Name: "client", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(1)},
			{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerMinute(2), Hidden: true},
		},
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)
	for _, client := range []string{"192.0.2.1:1", "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.RemoteAddr = client
		handler.ServeHTTP(w, r)
		fmt.Println(client, w.Code)
	}
	// Output:
	// 192.0.2.1:1 200
	// 192.0.2.1:1 429
	// 192.0.2.2:1 200
	// 192.0.2.3:1 429
}

// Clients with an API key are counted by it, others by address.
func ExampleFirstOf() {
	key := ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP())
	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(key(r))
	r.Header.Set("X-Api-Key", "secret")
	fmt.Println(key(r))
	// Output:
	// ip:192.0.2.1 <nil>
	// header:x-api-key:K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols <nil>
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
		TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.0.0/8")),
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
	printResponse(mux, "GET", "/items/1")
	printResponse(mux, "GET", "/items/2")
	printResponse(mux, "GET", "/items/3")
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
	printResponse(limiter.Handler(mux), "GET", "/items/1")
	// Output:
	// true policy route: ratelimit: no key: the request has not matched a route yet: mount the limiter on the route's handler, not around the router; under a router other than ServeMux and chi, set http.Request.Pattern first, or use another key
	// GET /items/1 403
}

func ExampleJoin() {
	// A bucket for each client on each route.
	key := ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) { fmt.Println(key(r)) })
	printResponse(mux, "GET", "/items/1")
	// Output:
	// join:ip:192.0.2.1|route:GET /items/{id} <nil>
	// GET /items/1 200
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

	printResponse(r, "GET", "/", "X-Forwarded-For", "192.0.2.1") // the peer is none of ours: it is the client
	printResponse(r, "GET", "/", "X-Forwarded-For", "192.0.2.2")
	// Output:
	// GET / 200
	// GET / 429
}

// Authenticate before the limiter, put the member into the request's context, and limit by that. Then each request
// counts for the member that the handlers see.
func ExampleContextKey() {
	type memberKey struct{}
	memberOf := func(ctx context.Context) (string, bool) {
		member, ok := ctx.Value(memberKey{}).(string)
		return member, ok
	}
	members := map[string]string{"Bearer a-token": "ann", "Bearer b-token": "bob"}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			member := members[r.Header.Get("Authorization")]
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), memberKey{}, member)))
		})
	}
	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "member",
			Key:   ratelimit.FirstOf(ratelimit.ContextKey("member", memberOf), ratelimit.RemoteIP()),
			Limit: ratelimit.PerMinute(1),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	handler := authenticate(limiter.Handler(hello))

	printResponse(handler, "GET", "/", "Authorization", "Bearer a-token")
	printResponse(handler, "GET", "/", "Authorization", "Bearer a-token")
	printResponse(handler, "GET", "/", "Authorization", "Bearer b-token")
	printResponse(handler, "GET", "/") // by its address
	// Output:
	// GET / 200
	// GET / 429
	// GET / 200
	// GET / 200
}
