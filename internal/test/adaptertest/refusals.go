package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

var errBroken = errors.New("broken: secret")

// A broken store fails.
type broken struct{}

func (broken) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errBroken
}

// keyed returns a policy whose Key fails, with a text that no client may see.
func keyed(err error) ratelimit.Policy {
	p := everybody("api", 5)
	p.Key = func(*http.Request) (string, error) { return "", fmt.Errorf("%w: secret", err) }
	return p
}

func failsClosed() ratelimit.Policy {
	p := everybody("api", 5)
	p.FailClosed = true
	return p
}

// refused are configurations that refuse the first request.
var refused = []struct {
	name   string
	status int
	reason error // nil for a denial
	cfg    func() ratelimit.Config
}{
	{"FailClosed", 503, errBroken, func() ratelimit.Config {
		return ratelimit.Config{Store: broken{}, Policies: []ratelimit.Policy{failsClosed()}}
	}},
	{"ErrNoKey", 403, ratelimit.ErrNoKey, func() ratelimit.Config {
		return ratelimit.Config{Policies: []ratelimit.Policy{keyed(ratelimit.ErrNoKey)}}
	}},
	{"ErrBadRequest", 400, ratelimit.ErrBadRequest, func() ratelimit.Config {
		return ratelimit.Config{Policies: []ratelimit.Policy{keyed(ratelimit.ErrBadRequest)}}
	}},
	{"another error of Key", 503, errBroken, func() ratelimit.Config {
		return ratelimit.Config{Policies: []ratelimit.Policy{keyed(errBroken)}}
	}},
	{"a rate of 0", 429, nil, func() ratelimit.Config {
		p := everybody("api", 1)
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }
		return ratelimit.Config{Policies: []ratelimit.Policy{p}}
	}},
}

var (
	refusals      = refusalChecks()
	errorHandling = errorChecks()
)

func refusalChecks() []check {
	var checks []check
	for _, c := range refused {
		checks = append(checks, check{"refusal: " + c.name, func(e *env) {
			url := e.serve(App{Limiter: e.limiter(c.cfg()), Handler: true, Routes: []Route{{Method: "GET", Path: "/", Handler: unreachable}}})
			a := e.get(url)
			e.want(a, c.status, "request")
			if strings.Contains(a.body, "secret") {
				e.Errorf("body %q", a.body)
			}
			if a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Cache-Control") != "no-store" {
				e.Errorf("header %v", a.header)
			}
			if has := a.header.Get("Retry-After") != ""; has != (c.status == 503) {
				e.Errorf("Retry-After %q", a.header.Get("Retry-After"))
			}
		}})
	}
	return append(checks,
		check{"Config.Error", testConfigError},
		check{"fail open", testFailOpen},
		check{"Skip", testSkip},
		check{"Reload", testReload},
		check{"Shadow and Hidden", testShadowAndHidden},
	)
}

// errorChecks are those of Config.Errors: the framework's error handling answers, and the headers are ours.
func errorChecks() []check {
	checks := []check{
		{"Errors: a denial", testErrorsOfDenials},
		{"Errors: a client that leaves while it waits", func(e *env) { e.testLeavesWaiting(true) }},
		{"Errors: a refusal inside settles outside", func(e *env) { e.testRefusalInside(true) }},
	}
	for _, c := range refused {
		checks = append(checks, check{"Errors: " + c.name, func(e *env) {
			var handled atomic.Int32
			url := e.serve(App{
				Limiter: e.limiter(c.cfg()),
				Errors:  true,
				Handler: true,
				Routes:  []Route{{Method: "GET", Path: "/", Handler: unreachable}},
				OnError: func(ctx Context, status int, err error) {
					handled.Add(1)
					if status != c.status || c.reason != nil && !errors.Is(err, c.reason) {
						e.Errorf("the error handling gets status %d, error %v", status, err)
					}
					if d, ok := ctx.FromContext(); ok != (status == 429) || ok && d.Allowed {
						e.Errorf("the error handling finds decision %+v, %t", d, ok)
					}
				},
			})
			e.wantError(e.get(url), c.status)
			if n := handled.Load(); n != 1 {
				e.Errorf("the error was handled %d times", n)
			}
		}})
	}
	return checks
}

func unreachable(c Context) error { return c.Text(200, "the handler was called") }

func (e *env) wantError(a answer, status int) {
	e.Helper()
	e.want(a, status, "request")
	if want := fmt.Sprint("framework ", status); a.body != want {
		e.Errorf("body %q", a.body)
	}
	if a.header.Get("Cache-Control") != "no-store" {
		e.Errorf("header %v", a.header)
	}
	if status == 503 && a.header.Get("Retry-After") == "" {
		e.Errorf("header %v", a.header)
	}
}

func testErrorsOfDenials(e *env) {
	login, outer := everybody("login", 2), everybody("outer", 10)
	login.Settle = ratelimit.FailedLogins
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{outer}})
	url := e.serve(App{
		Limiter: limiter,
		Handler: true,
		Errors:  true,
		Routes: []Route{{Method: "POST", Path: "/", Policies: []ratelimit.Policy{login}, Handler: func(c Context) error {
			if c.Query("good") != "" {
				return c.Text(200, "welcome")
			}
			return c.Text(401, "wrong")
		}}},
	})
	for i := range 3 {
		e.want(e.send("POST", url+"/?good=1"), 200, "successful login %d", i+1)
	}
	for i := range 2 {
		if a := e.send("POST", url); a.status != 401 || a.body != "wrong" {
			e.Fatalf("failed login %d: status %d, body %q, error %v", i+1, a.status, a.body, a.err)
		}
	}
	a := e.send("POST", url)
	e.wantError(a, 429)
	if a.header.Get("Retry-After") == "" || a.header.Get("X-Ratelimit-Limit") != "2" || a.header.Get("X-Ratelimit-Remaining") != "0" {
		e.Errorf("header %v", a.header)
	}
}

func testConfigError(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{
			Policies: []ratelimit.Policy{keyed(ratelimit.ErrNoKey)},
			Error: func(w http.ResponseWriter, _ *http.Request, err error) {
				if errors.Is(err, ratelimit.ErrNoKey) {
					w.WriteHeader(http.StatusUnauthorized)
				}
			},
		}),
		Handler: true,
		Routes:  []Route{{Method: "GET", Path: "/", Handler: unreachable}},
	})
	a := e.get(url)
	e.want(a, 401, "request")
	if a.body != "" {
		e.Errorf("body %q", a.body)
	}
}

func testFailOpen(e *env) {
	var failures atomic.Int32
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{
			Store:    broken{},
			Policies: []ratelimit.Policy{everybody("api", 1)},
			Observe:  func(context.Context, *ratelimit.Event) { failures.Add(1) },
		}),
		Handler: true,
		Routes:  []Route{{Method: "GET", Path: "/", Handler: ok}},
	})
	for range 2 {
		if a := e.get(url); a.status != 200 || a.header.Get("X-Ratelimit-Limit") != "" {
			e.Errorf("status %d, header %v", a.status, a.header)
		}
	}
	if got := failures.Load(); got != 2 {
		e.Errorf("%d decisions failed, want 2", got)
	}
}

func testSkip(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{
			Policies: []ratelimit.Policy{everybody("api", 1)},
			Skip:     func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		}),
		Handler: true,
		Routes: []Route{
			{Method: "GET", Path: "/healthz", Policies: []ratelimit.Policy{everybody("route", 1)}, Handler: ok},
			{Method: "GET", Path: "/", Handler: ok},
		},
	})
	for range 3 {
		if a := e.get(url + "/healthz"); a.status != 200 || a.body != "ok" || a.header.Get("X-Ratelimit-Limit") != "" {
			e.Errorf("status %d, body %q, header %v", a.status, a.body, a.header)
		}
	}
	e.want(e.get(url), 200, "first")
	e.want(e.get(url), 429, "second")
}

func testReload(e *env) {
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 1)}})
	url := e.serve(App{
		Limiter: limiter,
		Handler: true,
		Routes:  []Route{{Method: "GET", Path: "/", Policies: []ratelimit.Policy{everybody("route", 10)}, Handler: ok}},
	})
	e.want(e.get(url), 200, "first")
	e.want(e.get(url), 429, "second")
	if err := limiter.Reload(everybody("other", 20), everybody("route", 2)); err != nil {
		e.Fatal(err)
	}
	e.want(e.get(url), 200, "third, under other policies")
	e.want(e.get(url), 200, "fourth")
	e.want(e.get(url), 429, "fifth: the limit of the route is 2 now")
}

func testShadowAndHidden(e *env) {
	shadow, hidden := everybody("shadow", 1), everybody("hidden", 3)
	shadow.Shadow, hidden.Hidden = true, true
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{shadow, hidden}}),
		Handler: true,
		Routes:  []Route{{Method: "GET", Path: "/", Handler: ok}},
	})
	for i := range 3 {
		a := e.get(url)
		e.want(a, 200, "request %d", i+1)
		if a.header.Get("X-Ratelimit-Limit") != "" {
			e.Errorf("header %v", a.header)
		}
	}
	a := e.get(url)
	e.want(a, 429, "the fourth")
	if a.header.Get("Retry-After") == "" || a.header.Get("X-Ratelimit-Limit") != "" {
		e.Errorf("header %v", a.header)
	}
}
