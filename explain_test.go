package ratelimit_test

import (
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

// askingAt returns a request of a route.
func askingAt(route, method, path string) *http.Request {
	r := asking(method, path)
	r.Pattern = route
	return r
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
		place := l.Mounted + "(" + strings.Join(policies, ", ") + ")"
		if !l.Met {
			place = "not " + place
		}
		all = append(all, place)
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

// An explanation is what Handler does next, and explaining takes no tokens.
func TestExplainSaysWhatHandlerDoes(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(60))}})
	login := ratelimit.Policy{Name: "login", Key: ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()), Limit: ratelimit.PerMinute(2)}
	mux := http.NewServeMux()
	mux.Handle("POST /login/{id}", l.Limit(login)(okHandler))
	h := l.Handler(mux)
	h.ServeHTTP(httptest.NewRecorder(), asking("POST", "/login/7"))
	for i := range 3 {
		e := l.Explain(askingAt("POST /login/{id}", "POST", "/login/7"))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, asking("POST", "/login/7"))
		want := 0
		if i > 0 {
			want = w.Code
		}
		w.Header().Del("Content-Type")
		w.Header().Del("X-Content-Type-Options")
		w.Header().Del("Content-Length")
		if e.Status != want || !sameAnswer(e.Header, w.Header()) {
			t.Errorf("explained as %d %v, answered %d %v", e.Status, e.Header, w.Code, w.Header())
		}
		if len(e.Limiters) != 2 || len(e.Unknown) != 0 || e.Route != "POST /login/{id}" || e.Limiters[1].Pattern != e.Route || e.Limiters[0].Pattern != "" {
			t.Errorf("route %q, unknown %q, %+v", e.Route, e.Unknown, e.Limiters)
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

// The places that requests of a route have met are known from these requests. All others are listed apart.
func TestExplainKnowsThePlacesOfARoute(t *testing.T) {
	api := perIP("api", ratelimit.PerMinute(60))
	policy := func(name string) ratelimit.Policy { return perIP(name, ratelimit.PerMinute(60)) }
	start := func(t *testing.T) *ratelimit.Limiter {
		return newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api}})
	}
	serve := func(h http.Handler, method, path string) {
		h.ServeHTTP(httptest.NewRecorder(), asking(method, path))
	}
	const notKnown = "it is not known whether these policies apply: "

	t.Run("Nested muxes", func(t *testing.T) {
		l := start(t)
		inner := http.NewServeMux()
		inner.Handle("GET /a/{id}", l.Limit(policy("leaf"))(okHandler))
		outer := http.NewServeMux()
		outer.Handle("/a/", l.Limit(policy("tree"))(inner))
		outer.Handle("/b", l.Limit(policy("other"))(okHandler))
		h := l.Handler(outer)
		e := l.Explain(askingAt("GET /a/{id}", "GET", "/a/1"))
		checkExplained(t, e, "Handler(api allowed) not Limit(leaf allowed) not Limit(tree allowed) not Limit(other allowed) 0", notKnown+"leaf, other, tree:")
		serve(h, "GET", "/a/1")
		serve(h, "GET", "/b")
		e = l.Explain(askingAt("GET /a/{id}", "GET", "/a/1"))
		checkExplained(t, e, "Handler(api allowed) Limit(tree allowed) Limit(leaf allowed) not Limit(other allowed) 0")
		if got := []string{e.Limiters[0].Pattern, e.Limiters[1].Pattern, e.Limiters[2].Pattern, e.Limiters[3].Pattern}; !slices.Equal(got, []string{"", "/a/", "GET /a/{id}", "/b"}) {
			t.Errorf("patterns %q", got)
		}
		if routes := e.Limiters[3].Routes; !slices.Equal(routes, []string{"/b"}) {
			t.Errorf("routes %q", routes)
		}
		checkExplained(t, l.Explain(askingAt("/b", "GET", "/b")), "Handler(api allowed) Limit(other allowed) not Limit(leaf allowed) not Limit(tree allowed) 0")
		checkExplained(t, l.Explain(asking("GET", "/b")), "Handler(api allowed) not Limit(leaf allowed) not Limit(tree allowed) not Limit(other allowed) 0", notKnown+"leaf, other, tree:")
		runtime.KeepAlive(h)
	})
	t.Run("chi", func(t *testing.T) {
		l := start(t)
		r := chi.NewRouter()
		r.Use(l.Limit(policy("early")), l.Handler)
		r.Route("/a", func(r chi.Router) {
			r.Use(l.Limit(policy("group")))
			r.With(l.Limit(policy("leaf"))).Get("/{id:[0-9]+}", okHandler)
			r.Get("/", okHandler)
		})
		serve(r, "GET", "/a/1")
		serve(r, "GET", "/a")
		serve(r, "GET", "/a/")
		e := l.Explain(askingAt("GET /a/{id:[0-9]+}", "GET", "/a/2"))
		checkExplained(t, e, "Limit(early allowed) Handler(api allowed) Limit(group allowed) Limit(leaf allowed) 0")
		if routes := e.Limiters[0].Routes; !slices.Equal(routes, []string{"GET /a/{id:[0-9]+}", "GET /a"}) {
			t.Errorf("routes %q", routes)
		}
		checkExplained(t, l.Explain(askingAt("GET /a", "GET", "/a")), "Limit(early allowed) Handler(api allowed) Limit(group allowed) not Limit(leaf allowed) 0")
		runtime.KeepAlive(r)
	})
	t.Run("Without a router", func(t *testing.T) {
		l := start(t)
		h := l.Handler(l.Limit(policy("inner"))(okHandler))
		serve(h, "GET", "/")
		checkExplained(t, l.Explain(asking("GET", "/")), "Handler(api allowed) Limit(inner allowed) 0")
		runtime.KeepAlive(h)
	})
	t.Run("A router that sets no pattern", func(t *testing.T) {
		l := start(t)
		a, b := l.Limit(policy("a"))(okHandler), l.Limit(policy("b"))(okHandler)
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/a" {
				a.ServeHTTP(w, r)
			} else {
				b.ServeHTTP(w, r)
			}
		}))
		serve(h, "GET", "/a")
		serve(h, "GET", "/b")
		checkExplained(t, l.Explain(askingAt("/a", "GET", "/a")), "Handler(api allowed) not Limit(a allowed) not Limit(b allowed) 0", notKnown+"a, b")
		runtime.KeepAlive(h)
	})
	t.Run("Another Limiter", func(t *testing.T) {
		l, other := start(t), start(t)
		h := l.Handler(other.Limit(policy("other"))(l.Limit(policy("inner"))(okHandler)))
		serve(h, "GET", "/")
		checkExplained(t, l.Explain(asking("GET", "/")), "Handler(api allowed) Limit(inner allowed) 0")
		checkExplained(t, other.Explain(asking("GET", "/")), "Limit(other allowed) not Handler(api allowed) 0")
		runtime.KeepAlive(h)
	})
	t.Run("A place that no policy applies to", func(t *testing.T) {
		l := start(t)
		free := policy("free")
		free.Limit = ratelimit.Unlimited
		h := l.Limit(free)(l.Limit(policy("inner"))(okHandler))
		serve(h, "GET", "/")
		checkExplained(t, l.Explain(asking("GET", "/")), "Limit(free unlimited) Limit(inner allowed) not Handler(api allowed) 0")
		runtime.KeepAlive(h)
	})
	t.Run("A refusal", func(t *testing.T) {
		l := start(t)
		h := l.Handler(l.Limit(policy("inner"))(okHandler))
		serve(h, "GET", "/")
		if _, err := l.Block(t.Context(), api, "ip:192.0.2.1", time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		checkExplained(t, l.Explain(asking("GET", "/")), "Handler(api denied) not Limit(inner allowed) 429")
		runtime.KeepAlive(h)
	})
	t.Run("Policies of the caller", func(t *testing.T) {
		l := start(t)
		login := ratelimit.Policy{Name: "login", Key: ratelimit.Route(), Limit: ratelimit.PerMinute(5)}
		e := l.Explain(askingAt("POST /login", "POST", "/login"), login)
		checkExplained(t, e, "Handler(api allowed) Limit(login allowed) 0")
		if key := e.Limiters[1].Policies[0].Key; key != "route:POST /login" {
			t.Errorf("key %q", key)
		}
		checkExplained(t, l.Explain(asking("GET", "/"), ratelimit.Policy{Name: "bad"}), "Handler(api allowed) 0", "malformed policies: policies[0] (\"bad\"): Key")
	})
	t.Run("More routes than are kept", func(t *testing.T) {
		l := start(t)
		mux, limited := http.NewServeMux(), l.Limit(policy("many"))(okHandler)
		for i := range 40 {
			mux.Handle(fmt.Sprintf("/%d", i), limited)
			serve(mux, "GET", fmt.Sprintf("/%d", i))
		}
		checkExplained(t, l.Explain(askingAt("/3", "GET", "/3")), "Limit(many allowed) not Handler(api allowed) 0")
		e := l.Explain(askingAt("/39", "GET", "/39"))
		checkExplained(t, e, "Handler(api allowed) not Limit(many allowed) 0", notKnown+"many")
		if n := len(e.Limiters[1].Routes); n != 16 {
			t.Errorf("%d routes", n)
		}
	})
	t.Run("Many places", func(t *testing.T) {
		l := start(t)
		var all []http.Handler
		for range 150 {
			all = append(all, l.Limit(policy("one"))(okHandler))
		}
		e := l.Explain(asking("GET", "/"))
		if len(e.Limiters) != 101 || !strings.Contains(strings.Join(e.Unknown, ""), "more than 100 places") {
			t.Errorf("%d places, unknown %q", len(e.Limiters), e.Unknown)
		}
		runtime.KeepAlive(all)
	})
	t.Run("After a Reload", func(t *testing.T) {
		l := start(t)
		if err := l.Reload(policy("first"), policy("second")); err != nil {
			t.Fatal(err)
		}
		e := l.Explain(asking("GET", "/"))
		checkExplained(t, e, "Handler(first allowed, second allowed) 0")
		if why := e.Limiters[0].Policies[0].LimitWhy; !strings.HasPrefix(why, "Reload at ") {
			t.Errorf("limit by %q", why)
		}
	})
}

// A KeyFunc finds the path values of the route that was chosen, at the places that know them.
func TestExplainSetsPathValues(t *testing.T) {
	id := func(r *http.Request) (string, error) { return "id:" + r.PathValue("id"), nil }
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{{Name: "api", Key: id, Limit: ratelimit.PerMinute(5)}}})
	for route, want := range map[string]string{"GET /a/{id}": "id:7", "/a/{id:[0-9]+}": "id:7", "/b/{id}": "id:", "POST /a/{id}": "id:", "{{{": "id:", "": "id:"} {
		r := askingAt(route, "GET", "/a/7")
		if key := l.Explain(r).Limiters[0].Policies[0].Key; key != want || r.PathValue("id") != "" || r.Pattern != route {
			t.Errorf("%s: key %q, want %q", route, key, want)
		}
	}
}

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
		{"free", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Cost = func(*http.Request) int64 { return 0 } }), nil, 0, explain.Allowed, "the request takes 0 of 5 tokens"},
		{"too dear", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Cost = func(*http.Request) int64 { return 6 } }), nil, 429, explain.Denied, "the cost is negative or above the burst of 5"},
		{"a rate of 0", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) {
			p.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }
		}), nil, 429, explain.Denied, "the rate is 0"},
		{"shadow", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Shadow, p.Cost = true, func(*http.Request) int64 { return 6 } }), nil, 0, explain.WouldDeny, "above the burst"},
		{"unlimited", free(policy(ratelimit.RemoteIP(), nil)), nil, 0, explain.Exempt, "the limit is Unlimited"},
		{"unlimited by the program", policy(ratelimit.RemoteIP(), func(p *ratelimit.Policy) { p.Limit = ratelimit.Unlimited }), nil, 0, explain.Exempt, "the limit is Unlimited"},
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
			e := l.Explain(asking("GET", "/"))
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
