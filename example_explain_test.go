package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-tokenbucket/ratelimit"
)

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
