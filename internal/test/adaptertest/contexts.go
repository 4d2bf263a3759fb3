package adaptertest

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/go-tokenbucket/ratelimit"
)

var contexts = []check{
	{"SetCost in a handler", testSetCost},
	{"FromContext in a handler", testFromContext},
	{"FromContext outside of a limiter", testNoDecision},
	{"FromContext in Deny", testFromContextInDeny},
	{"FromContext in a logger outside", testFromContextOutside},
}

func testSetCost(e *env) {
	policy := everybody("llm", 100)
	policy.Cost = func(*http.Request) int64 { return 10 }
	policy.Settle = func(*http.Request, ratelimit.Response) int64 { return 50 }
	limiter := e.limiter(ratelimit.Config{})
	url := e.serve(App{
		Limiter: limiter,
		Routes: []Route{{Method: "GET", Path: "/", Policies: []ratelimit.Policy{policy}, Handler: func(c Context) error {
			if !ratelimit.SetCost(c.Context(), "llm", 3) {
				return c.Text(500, "SetCost found no policy")
			}
			return c.Text(200, "ok")
		}}},
	})
	e.want(e.get(url), 200, "request")
	e.eventually("the cost is 3", func() bool { return e.remaining(limiter, policy) == 97 })
}

func testFromContext(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 5)}}),
		Handler: true,
		Routes: []Route{{Method: "GET", Path: "/", Policies: []ratelimit.Policy{everybody("inner", 3)}, Handler: func(c Context) error {
			ours, ok := c.FromContext()
			if !ok {
				return c.Text(500, "FromContext of the adapter finds nothing")
			}
			if theirs, _ := ratelimit.FromContext(c.Context()); theirs != ours {
				return c.Text(500, "ratelimit.FromContext of the request's context finds another")
			}
			return c.Text(200, fmt.Sprint(len(ours.Results), ours.Results[0].Remaining, ours.Results[1].Remaining))
		}}},
	})
	if a := e.get(url); a.body != "2 4 2" {
		e.Errorf("status %d, body %q", a.status, a.body)
	}
}

func testNoDecision(e *env) {
	found := func(c Context) error {
		_, found := c.FromContext()
		return c.Text(200, fmt.Sprint(found))
	}
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{}),
		Routes: []Route{
			{Method: "GET", Path: "/limited", Policies: []ratelimit.Policy{everybody("inner", 5)}, Handler: found},
			{Method: "GET", Path: "/", Handler: found},
		},
	})
	for range 3 { // contexts of frameworks are reused
		if a := e.get(url + "/limited"); a.body != "true" {
			e.Errorf("a limited one: status %d, body %q", a.status, a.body)
		}
		if a := e.get(url); a.body != "false" {
			e.Errorf("a free one: status %d, body %q", a.status, a.body)
		}
	}
}

func testFromContextInDeny(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{
			Policies: []ratelimit.Policy{everybody("api", 1)},
			Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				d, ok := ratelimit.FromContext(r.Context())
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(http.StatusTeapot)
				fmt.Fprint(w, ok && !d.Allowed, d.Denied())
			}),
		}),
		Handler: true,
		Routes:  []Route{{Method: "GET", Path: "/", Handler: ok}},
	})
	e.want(e.get(url), 200, "first")
	a := e.get(url)
	e.want(a, http.StatusTeapot, "second")
	if a.body != "true [api]" && a.body != "true[api]" {
		e.Errorf("body %q", a.body)
	}
	if a.header.Get("Content-Type") != "text/plain" || a.header.Get("Retry-After") == "" {
		e.Errorf("header %v", a.header)
	}
}

// A logger outside of the limiter finds the decision, also about a request that was denied.
func testFromContextOutside(e *env) {
	if e.f.Logger == nil {
		e.Fatal("the framework has no Logger")
	}
	var mu sync.Mutex
	var seen []string
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 1)}}),
		Handler: true,
		Outside: []any{e.f.Logger(func(c Context) {
			mu.Lock()
			defer mu.Unlock()
			if d, ok := c.FromContext(); ok {
				seen = append(seen, fmt.Sprint(d.Allowed))
			} else {
				seen = append(seen, "none")
			}
		})},
		Routes: []Route{{Method: "GET", Path: "/", Handler: ok}},
	})
	e.get(url)
	e.get(url)
	e.eventually("the logger has seen two decisions", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint(seen) == "[true false]"
	})
}
