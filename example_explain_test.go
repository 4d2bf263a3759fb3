package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-tokenbucket/ratelimit"
)

// A test asks which limits a login meets, for which keys. No handler runs.
func ExampleLimiter_Explain() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()
	login := ratelimit.Policy{Name: "login", Key: ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()), Limit: ratelimit.PerMinute(5)}
	mux := http.NewServeMux()
	mux.Handle("POST /login/{tenant}", limiter.Limit(login)(http.HandlerFunc(hello)))
	server := &http.Server{Handler: limiter.Handler(mux)} // it does not have to run

	r := httptest.NewRequest("POST", "/login/acme", nil)
	e := limiter.Explain(r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)))
	for _, place := range e.Limiters {
		for _, p := range place.Policies {
			fmt.Println(p.Name, p.Outcome, p.Key, p.Limit, p.Before.Remaining, "to", p.After.Remaining)
		}
	}
	fmt.Println(e.Header["X-Ratelimit-Remaining"], e.Unknown)
	// Output:
	// api allowed ip:192.0.2.1 60/1m 60 to 59
	// login allowed join:ip:192.0.2.1|route:POST /login/{tenant} 5/1m 5 to 4
	// [4] []
}
