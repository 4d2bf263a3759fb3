package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/store"
)

// servedBy returns r as a server with that handler receives it.
func servedBy(h http.Handler, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{Handler: h}))
}

func asking(method, path string) *http.Request { return httptest.NewRequest(method, path, nil) }

// summary is an explanation on one line: each place with its policies and their outcomes, and the status.
func summary(e *explain.Explanation) string {
	var all []string
	for _, l := range e.Limiters {
		var policies []string
		for _, p := range l.Policies {
			policies = append(policies, p.Name+" "+p.Outcome)
		}
		all = append(all, l.Mounted+"("+strings.Join(policies, ", ")+")")
	}
	return strings.Join(append(all, fmt.Sprint(e.Status)), " ")
}

func checkExplained(t *testing.T, e *explain.Explanation, want string, unknown ...string) {
	t.Helper()
	if got := summary(e); got != want {
		t.Errorf("explained as %s, want %s", got, want)
	}
	if len(e.Unknown) != len(unknown) {
		t.Errorf("unknown %q, want %q", e.Unknown, unknown)
		return
	}
	for i, part := range unknown {
		if !strings.Contains(e.Unknown[i], part) {
			t.Errorf("unknown %q, want %q in it", e.Unknown[i], part)
		}
	}
}

func notRun(t *testing.T) http.Handler { return http.HandlerFunc(endHandler{t}.end) }

// An endHandler fails the test if it runs. Its method is no middleware, for its name.
type endHandler struct{ t *testing.T }

func (h endHandler) end(http.ResponseWriter, *http.Request) { h.t.Error("a handler ran") }

//go:noinline
func logging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
}

// An explanation is what Handler does next, and explaining takes no tokens.
func TestExplainSaysWhatHandlerDoes(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(60))}})
	login := ratelimit.Policy{Name: "login", Key: ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()), Limit: ratelimit.PerMinute(1)}
	mux := http.NewServeMux()
	ran := 0
	mux.Handle("POST /login/{id}", l.Limit(login)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })))
	h := l.Handler(mux)
	for i := range 3 {
		e := l.Explain(servedBy(h, asking("POST", "/login/7")))
		if ran != min(i, 1) {
			t.Fatal("Explain ran the handler")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, asking("POST", "/login/7"))
		want := 0
		if i > 0 {
			want = w.Code
		}
		if e.Status != want || e.Status != 0 && e.Body != w.Body.String() {
			t.Errorf("explained as %d %q, answered %d %q", e.Status, e.Body, w.Code, w.Body)
		}
		if !sameAnswer(e.Header, w.Header()) {
			t.Errorf("explained headers %v, answered %v", e.Header, w.Header())
		}
		if len(e.Limiters) != 2 || len(e.Unknown) != 0 || e.Route != "POST /login/{id}" || e.Limiters[1].Pattern != e.Route {
			t.Errorf("%d limiters, route %q, unknown %q", len(e.Limiters), e.Route, e.Unknown)
		}
	}
}

// sameAnswer compares headers. X-RateLimit-Reset may be a second later.
func sameAnswer(got, want http.Header) bool {
	got, want = maps.Clone(got), maps.Clone(want)
	const reset = "X-Ratelimit-Reset"
	g, _ := time.ParseDuration(got.Get(reset) + "s")
	w, _ := time.ParseDuration(want.Get(reset) + "s")
	if (g - w).Abs() <= time.Second {
		got.Del(reset)
		want.Del(reset)
	}
	return maps.EqualFunc(got, want, slices.Equal)
}

// Explain finds the root of the program's routes: by the server, by the one handler of Handler, or not at all.
func TestExplainFindsThePlaces(t *testing.T) {
	api, login := perIP("api", ratelimit.PerMinute(60)), perIP("login", ratelimit.PerMinute(5))
	start := func(t *testing.T) *ratelimit.Limiter {
		return newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api}})
	}
	const both, only, none = "Handler(api allowed) Limit(login allowed) 0", "Handler(api allowed) 0", "0"

	t.Run("The server in the context", func(t *testing.T) {
		l := start(t)
		mux := http.NewServeMux()
		mux.Handle("/limited", l.Handler(l.Limit(login)(notRun(t))))
		mux.Handle("/also", l.Handler(notRun(t)))
		mux.Handle("/free", notRun(t))
		checkExplained(t, l.Explain(servedBy(mux, asking("GET", "/limited"))), both)
		checkExplained(t, l.Explain(servedBy(mux, asking("GET", "/also"))), only)
		checkExplained(t, l.Explain(servedBy(mux, asking("GET", "/free"))), none)
		checkExplained(t, l.Explain(servedBy(mux, asking("GET", "/nowhere"))), none)
		checkExplained(t, l.Explain(asking("GET", "/limited")), only, "Handler is mounted 2 times", "policies login:")
		runtime.KeepAlive(mux)
	})
	t.Run("The default mux of a server", func(t *testing.T) {
		l, old := start(t), http.DefaultServeMux
		http.DefaultServeMux = http.NewServeMux() // so that the test can be repeated
		defer func() { http.DefaultServeMux = old }()
		http.Handle("/explained/default", l.Handler(notRun(t)))
		checkExplained(t, l.Explain(servedBy(nil, asking("GET", "/explained/default"))), only)
		checkExplained(t, l.Explain(servedBy(nil, asking("GET", "/explained/other"))), none)
	})
	t.Run("A real server", func(t *testing.T) {
		l := start(t)
		var got *explain.Explanation
		mux := http.NewServeMux()
		mux.HandleFunc("/explained", func(_ http.ResponseWriter, r *http.Request) { got = l.Explain(r) })
		server := httptest.NewServer(l.Handler(mux))
		defer server.Close()
		res, err := http.Get(server.URL + "/explained")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		checkExplained(t, got, only)
		if len(got.Limiters) == 1 && got.Limiters[0].Policies[0].After.Remaining != 58 {
			t.Errorf("in the handler of the request: %+v", got.Limiters[0].Policies[0].After)
		}
	})
	t.Run("The one handler", func(t *testing.T) {
		l := start(t)
		h := l.Handler(l.Limit(login)(notRun(t)))
		checkExplained(t, l.Explain(asking("GET", "/")), both)
		checkExplained(t, l.Explain(servedBy(logging(h), asking("GET", "/"))), both, "ratelimit_test.logging.func1, the handler of the server, cannot be looked into")
		mux := http.NewServeMux()
		mux.Handle("/", logging(h))
		mux.Handle("/leaf", logging(h))
		checkExplained(t, l.Explain(servedBy(mux, asking("GET", "/"))), both, "logging.func1, the handler of the server, cannot be looked into")
		checkExplained(t, l.Explain(servedBy(mux, asking("GET", "/leaf"))), none, "logging.func1 cannot be looked into: policies that may be mounted inside: api, login")
		runtime.KeepAlive(h)
	})
	t.Run("No handler", func(t *testing.T) {
		l := start(t)
		l.Handler(notRun(t)) // is collected
		for range 10 {
			runtime.GC()
		}
		checkExplained(t, l.Explain(asking("GET", "/")), only)
		mounted := l.Limit(login)(notRun(t))
		checkExplained(t, l.Explain(asking("GET", "/")), only, "not known whether they apply: policies login: put an *http.Server")
		checkExplained(t, newLimiter(t, ratelimit.Config{}).Explain(asking("GET", "/")), none)
		checkExplained(t, l.Explain(servedBy(mounted, asking("GET", "/"))), "Limit(login allowed) 0")
	})
	t.Run("Middleware of others", func(t *testing.T) {
		l := start(t)
		r := chi.NewRouter()
		r.Use(logging, l.Handler)
		r.With(logging, l.Limit(login)).Get("/a/{id}", endHandler{t}.end)
		r.With(l.Limit(perIP("other", ratelimit.PerMinute(5)))).Get("/b", endHandler{t}.end)
		r.Get("/c", logging(notRun(t)).ServeHTTP)
		e := l.Explain(servedBy(r, asking("GET", "/a/5")))
		checkExplained(t, e, both, "not run, so that it is not known whether they change or answer the request: ratelimit_test.logging")
		if e.Route != "GET /a/{id}" || e.Limiters[0].Pattern != e.Route {
			t.Errorf("route %q, at the outer place %q", e.Route, e.Limiters[0].Pattern)
		}
		checkExplained(t, l.Explain(servedBy(r, asking("GET", "/nowhere"))), only, "not run")
	})
	t.Run("Another Limiter", func(t *testing.T) {
		l, other := start(t), start(t)
		h := l.Handler(other.Limit(login)(l.Limit(login)(notRun(t))))
		checkExplained(t, l.Explain(servedBy(h, asking("GET", "/"))), both, "meets another Limiter")
	})
	t.Run("A framework", func(t *testing.T) {
		l := start(t)
		checkExplained(t, l.Explain(servedBy(l.Handler(framework{}), asking("GET", "/"))), only, "ratelimit_test.framework cannot be looked into: its routes are not known")
		mounted := l.Limit(login)(notRun(t))
		checkExplained(t, l.Explain(servedBy(l.Handler(framework{}), asking("GET", "/"))), only, "ratelimit_test.framework cannot be looked into: policies that may be mounted inside: login")
		runtime.KeepAlive(mounted)
	})
	t.Run("A policy that is charged twice", func(t *testing.T) {
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(1))}})
		checkExplained(t, l.Explain(servedBy(l.Handler(l.Handler(notRun(t))), asking("GET", "/"))), "Handler(api allowed) Handler(api denied) 429")
	})
	t.Run("After a Reload", func(t *testing.T) {
		l := start(t)
		h := l.Handler(notRun(t))
		if err := l.Reload(perIP("first", ratelimit.PerMinute(2)), perIP("second", ratelimit.PerMinute(2))); err != nil {
			t.Fatal(err)
		}
		e := l.Explain(servedBy(h, asking("GET", "/")))
		checkExplained(t, e, "Handler(first allowed, second allowed) 0")
		if why := e.Limiters[0].Policies[0].LimitWhy; !strings.HasPrefix(why, "Reload at ") {
			t.Errorf("limit by %q", why)
		}
	})
}

type framework struct{}

func (framework) ServeHTTP(http.ResponseWriter, *http.Request) { panic("it ran") }

// Each outcome has a sentence that says why.
func TestExplainedOutcomes(t *testing.T) {
	fails := func(err error) ratelimit.KeyFunc {
		return func(*http.Request) (string, error) { return "", err }
	}
	free := func(p ratelimit.Policy) ratelimit.Policy {
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.Unlimited }
		return p
	}
	policy := func(key ratelimit.KeyFunc, change func(*ratelimit.Policy)) ratelimit.Policy {
		p := ratelimit.Policy{Name: "p", Key: key, Limit: ratelimit.PerMinute(5)}
		if change != nil {
			change(&p)
		}
		return p
	}
	down := fmt.Errorf("%w: the directory is \x1b[31mdown", ratelimit.ErrOutage)
	for _, tt := range []struct {
		name    string
		p       ratelimit.Policy
		store   store.Store
		status  int
		outcome string
		why     string
	}{
		{"allowed", policy(ratelimit.RemoteIP(), nil), nil, 0, explain.Allowed, "the request takes 1 of 5 tokens"},
		{"free", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Cost = func(*http.Request) int64 { return 0 } }), nil, 0, explain.Allowed, "the request takes no tokens"},
		{"too dear", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Cost = func(*http.Request) int64 { return 6 } }), nil, 429, explain.Denied, "the cost is negative or above the burst of 5"},
		{"a rate of 0", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) {
			p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }
		}), nil, 429, explain.Denied, "the rate is 0"},
		{"shadow", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Shadow, p.Cost = true, func(*http.Request) int64 { return 6 } }), nil, 0, explain.WouldDeny, "above the burst"},
		{"unlimited", free(policy(ratelimit.RemoteIP(), nil)), nil, 0, explain.Exempt, "LimitFunc returned Unlimited"},
		{"unlimited by the program", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Limit = ratelimit.Unlimited }), nil, 0, explain.Exempt, "Policy.Limit is Unlimited"},
		{"no key", policy(ratelimit.Header("X-Api-Key"), nil), nil, 403, explain.NoKey, "no X-Api-Key header"},
		{"optional", policy(ratelimit.Header("X-Api-Key"), func(p *ratelimit.Policy) { p.Optional = true }), nil, 0, explain.LeftOut, "the policy is Optional"},
		{"shadow without a key", policy(ratelimit.Header("X-Api-Key"), func(p *ratelimit.Policy) { p.Shadow = true }), nil, 0, explain.LeftOut, "no X-Api-Key header"},
		{"bad request", policy(fails(ratelimit.ErrBadRequest), nil), nil, 400, explain.BadRequest, "bad request"},
		{"outage of the key", policy(fails(down), nil), nil, 0, explain.LeftOut, `the directory is \x1b[31mdown`},
		{"outage, closed", policy(fails(down), func(p *ratelimit.Policy) { p.FailClosed = true }), nil, 503, explain.Failed, "the directory"},
		{"an error of the key", policy(fails(errors.New("odd")), nil), nil, 503, explain.Failed, "odd"},
		{"a failed store", policy(ratelimit.RemoteIP(), nil), failing(func() error { return errors.New("no route") }), 0, explain.LeftOut, "no route"},
		{"a failed store, closed", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.FailClosed = true }), failing(func() error { return errors.New("no route") }), 503, explain.Failed, "no route"},
		{"a panic", policy(func(*http.Request) (string, error) { panic("odd") }, nil), nil, 0, explain.Failed, "panic: odd"},
		{"a panic of the limit", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) {
			p.LimitFunc = func(*http.Request) ratelimit.Limit { panic("odd") }
		}), nil, 0, explain.Failed, "panic: odd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Store: tt.store, Policies: []ratelimit.Policy{tt.p}})
			e := l.Explain(servedBy(l.Handler(notRun(t)), asking("GET", "/")))
			checkExplained(t, e, fmt.Sprintf("Handler(p %s) %d", tt.outcome, tt.status))
			if why := e.Limiters[0].Policies[0].Why; !strings.Contains(why, tt.why) {
				t.Errorf("why: %q, want %q in it", why, tt.why)
			}
			if panics := strings.HasPrefix(tt.name, "a panic"); panics && (e.Limiters[0].Allowed || !strings.Contains(e.Limiters[0].Err, "the server would abort the request")) {
				t.Errorf("after a panic: %+v", e.Limiters[0])
			}
		})
	}
}
