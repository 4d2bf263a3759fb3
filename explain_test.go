package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
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
		}), nil, 429, explain.Denied, "the limit is 0"},
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

// A looked is a Store that can only be looked at.
type looked struct {
	store.Store
	t       *testing.T
	written bool // Take may write
}

func (s *looked) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		if c := &charges[i]; !s.written && (c.Cost != 0 || c.Lock != 0) {
			s.t.Errorf("a write: %+v", *c)
		}
	}
	return s.Store.Take(ctx, charges, states)
}

// An explanation leaves no trace: in no bucket, observer, log, queue or watch.
func TestExplainWritesNothing(t *testing.T) {
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	defer memory.Close()
	s := &looked{Store: memory, t: t}
	var log bytes.Buffer
	tier := ratelimit.PerMinute(5)
	proxied := ratelimit.Policy{
		Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(10).WithBurst(2), MaxWait: time.Hour,
		LimitFunc: func(*http.Request) ratelimit.Limit { return tier },
		Settle:    func(*http.Request, ratelimit.Response) int64 { t.Error("settled"); return 0 },
	}
	l := newLimiter(t, ratelimit.Config{
		Store:    s,
		Policies: []ratelimit.Policy{proxied},
		Observe:  func(context.Context, *ratelimit.Event) { t.Error("observed") },
		Logger:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	failed := ratelimit.Policy{Name: "failed", Key: func(*http.Request) (string, error) { return "", errors.New("odd") }, Limit: tier}
	for _, h := range []http.Handler{l.Handler(okHandler), l.Limit(failed)(okHandler)} {
		for i := range 40 {
			r := asking("POST", "/")
			r.Body = io.NopCloser(unreadable{t})
			r.RemoteAddr = "10.0.0.1:99"
			r.Header.Set("X-Forwarded-For", "192.0.2.1")
			tier = ratelimit.PerMinute(int64(5 + i%2)) // which is warned of
			l.Explain(r)
		}
		runtime.KeepAlive(h)
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
	if waiting := l.Stats().Waiting; waiting != 0 {
		t.Errorf("%d requests wait", waiting)
	}
	if n := memory.Stats().Memory.Buckets; n != 0 {
		t.Errorf("%d buckets", n)
	}

	// The watch of proxies has noticed nothing.
	s.written = true
	live := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{perIP("live", ratelimit.PerMinute(10))}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	h := live.Handler(okHandler)
	r := requestFrom("10.0.0.1:99", "X-Forwarded-For", "192.0.2.1")
	for range 2000 {
		live.Explain(r)
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	if !strings.Contains(log.String(), "all clients of a proxy share one bucket") {
		t.Errorf("after explanations, the warning is missing: %s", &log)
	}
}

// An unreadable body fails the test if it is read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

func TestExplainDoesNotReadTheBody(t *testing.T) {
	p := perIP("api", ratelimit.PerMinute(10))
	p.Cost = func(r *http.Request) int64 {
		body, _ := io.ReadAll(r.Body)
		return r.ContentLength + int64(len(body))
	}
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}})
	r := httptest.NewRequest("POST", "/", unreadable{t})
	r.ContentLength = 3
	r.Header.Set("X-Kept", "yes")
	e := l.Explain(r)
	checkExplained(t, e, "Handler(api allowed) 0")
	if got := e.Limiters[0].Policies[0].Cost; got != 3 {
		t.Errorf("cost %d", got)
	}
	checkExplained(t, l.Explain(asking("GET", "/")), "Handler(api allowed) 0")
}

// A handler can explain the request that it serves. What the limiters have put there does not count.
func TestExplainInALimitedHandler(t *testing.T) {
	login := ratelimit.Policy{Name: "login", Key: ratelimit.Route(), Limit: ratelimit.PerMinute(5), Settle: ratelimit.FailedLogins}
	for want, build := range map[string]func(*ratelimit.Limiter, http.HandlerFunc) http.Handler{
		"Limit(early allowed) Handler(api allowed) Limit(login allowed) 0": func(l *ratelimit.Limiter, end http.HandlerFunc) http.Handler {
			r := chi.NewRouter()
			r.Use(l.Limit(perIP("early", ratelimit.PerMinute(60))), l.Handler)
			r.With(l.Limit(login)).Get("/a/{id}", end)
			return r
		},
		"Handler(api allowed) Limit(login allowed) 0": func(l *ratelimit.Limiter, end http.HandlerFunc) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /a/{id}", l.Limit(login)(end))
			return l.Handler(mux)
		},
	} {
		l := newLimiter(t, ratelimit.Config{
			Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(60))},
			Headers: func(h http.Header, d *ratelimit.Decision) {
				ratelimit.XRateLimit(h, d)
				h.Set("X-Results", fmt.Sprint(len(d.Results)))
			},
		})
		var inside *explain.Explanation
		h := build(l, func(_ http.ResponseWriter, r *http.Request) {
			before := r.Pattern
			if inside = l.Explain(r); r.Pattern != before {
				t.Errorf("Explain has changed the pattern to %q", r.Pattern)
			}
		})
		h.ServeHTTP(httptest.NewRecorder(), asking("GET", "/a/7"))
		checkExplained(t, inside, want)
		first, next := inside, httptest.NewRecorder()
		h.ServeHTTP(next, asking("GET", "/a/7"))
		if !sameAnswer(first.Header, next.Header()) || first.Header.Get("X-RateLimit-Remaining") != "3" {
			t.Errorf("%s: explained %v, answered %v", want, first.Header, next.Header())
		}
	}
}

// What Deny and Error write is not known, and they are not called.
func TestExplainDoesNotAnswer(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.Header("X-Api-Key"), Limit: ratelimit.PerHour(1), Cost: func(*http.Request) int64 { return 2 }}},
		Deny:     http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("Deny was called") }),
		Error:    func(http.ResponseWriter, *http.Request, error) { t.Error("Error was called") },
		Observe:  func(context.Context, *ratelimit.Event) { t.Error("Observe was called") },
	})
	ask := func(method string, keys ...string) *explain.Explanation {
		r := asking(method, "/")
		r.Header["X-Api-Key"] = keys
		return l.Explain(r)
	}
	checkExplained(t, ask("GET", "a"), "Handler(api denied) 429")
	checkExplained(t, ask("GET"), "Handler(api no_key) 403")
	checkExplained(t, ask("GET", "a", "b"), "Handler(api bad_request) 400")
	e := ask("PRI", "a")
	checkExplained(t, e, "Handler(api denied) 400")
	if !strings.Contains(e.Limiters[0].Err, "HTTP/2 without TLS") || e.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("PRI: %+v", e)
	}
}

// A function that explains what it is asked about is called once.
func TestExplainDoesNotRecur(t *testing.T) {
	for name, change := range map[string]func(*http.Request) *http.Request{
		"the same request": func(r *http.Request) *http.Request { return r },
		"a clone":          func(r *http.Request) *http.Request { return r.Clone(r.Context()) },
	} {
		var l *ratelimit.Limiter
		var inner *explain.Explanation
		calls := 0
		api := perIP("api", ratelimit.PerDay(5))
		api.Cost = func(r *http.Request) int64 {
			if calls++; calls < 20 { // an endless recursion ends the process
				inner = l.Explain(change(r))
			}
			return 1
		}
		l = newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api}})
		checkExplained(t, l.Explain(asking("GET", "/")), "Handler(api allowed) 0")
		if calls != 1 {
			t.Errorf("%s: %d calls", name, calls)
		}
		checkExplained(t, inner, "0", "a function that an explanation calls has called Explain")
	}
}

func TestExplainedPanics(t *testing.T) {
	for name, cfg := range map[string]ratelimit.Config{
		"Headers": {Headers: func(http.Header, *ratelimit.Decision) { panic("odd\x1b[2J") }, Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(1))}},
		"Skip":    {Skip: func(*http.Request) bool { panic("odd\x1b[2J") }, Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(1))}},
	} {
		l := newLimiter(t, cfg)
		if _, err := l.Take(t.Context(), cfg.Policies[0], "ip:192.0.2.1", 1); err != nil {
			t.Fatal(err)
		}
		e := l.Explain(asking("GET", "/"))
		if len(e.Limiters) != 1 || e.Limiters[0].Err != `panic: odd\x1b[2J: the server would abort the request` || e.Limiters[0].Allowed || e.Status != 0 {
			t.Errorf("%s: %+v", name, e)
		}
		if name != "Skip" && e.Limiters[0].Policies[0].Outcome != explain.Denied {
			t.Errorf("%s: %+v", name, e.Limiters[0].Policies[0])
		}
	}
	if e := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(1))}}).Explain(&http.Request{}); e.Path != "/" || e.Status != 403 {
		t.Errorf("a request without anything: %+v", e)
	}
}

func TestExplainSkip(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(1))},
		Skip:     func(r *http.Request) bool { return r.URL.Path == "/health" },
	})
	e := l.Explain(asking("GET", "/health"))
	checkExplained(t, e, "Handler(api left_out) 0")
	if got := e.Limiters[0]; !got.Skipped || !got.Allowed || len(e.Header) > 0 || got.Policies[0].Before != nil {
		t.Errorf("%+v", e)
	}
	if e := l.Explain(asking("GET", "/")); e.Limiters[0].Skipped {
		t.Errorf("%+v", e)
	}
}

// An explanation says where a limit comes from.
func TestExplainedLimits(t *testing.T) {
	program, slots := ratelimit.PerMinute(60).WithBurst(10), ratelimit.Concurrency(5)
	all := ratelimit.Override{Policy: "api", Limit: ratelimit.PerMinute(30), Why: "by alice"}
	key := ratelimit.Override{Policy: "api", Key: address, Limit: ratelimit.Quota(7, ratelimit.Day)}
	exempt := ratelimit.Override{Policy: "api", Key: address, Limit: ratelimit.Unlimited, Why: "by bob"}
	other := ratelimit.Override{Policy: "api", Key: "ip:192.0.2.2", Limit: ratelimit.PerMinute(30)}
	for _, tt := range []struct {
		name       string
		chosen     *ratelimit.Limit
		override   *ratelimit.Override
		limit, why string
	}{
		{"the program's", nil, nil, "60/1m burst 10", "Policy.Limit"},
		{"a tier", &ratelimit.Limit{Rate: 5, Per: time.Second}, nil, "5/1s", "LimitFunc"},
		{"a tier that is the program's", &program, nil, "60/1m burst 10", "LimitFunc"},
		{"no tier", &ratelimit.Limit{}, nil, "60/1m burst 10", "Policy.Limit: LimitFunc returned the zero Limit"},
		{"a malformed tier", &ratelimit.Limit{Rate: -1, Per: time.Second}, nil, "60/1m burst 10", "Policy.Limit: LimitFunc returned"},
		{"a tier of another kind", &slots, nil, "60/1m burst 10", "Policy.Limit: LimitFunc returned 5 at once, which is malformed"},
		{"an override", nil, &all, "30/1m", "by alice, program: 60/1m burst 10"},
		{"an override, and a tier", &ratelimit.Limit{Rate: 5, Per: time.Second}, &all, "30/1m", "by alice, program: LimitFunc, or 60/1m burst 10"},
		{"an override of the key", nil, &key, "7 per day", "of key ip:192.0.2.1: Override, program: 60/1m burst 10"},
		{"an override of the key, and a tier", &ratelimit.Limit{Rate: 5, Per: time.Second}, &key, "7 per day", "of key ip:192.0.2.1: Override, program: LimitFunc, or 60/1m burst 10"},
		{"an exempt key", nil, &exempt, "unlimited", "of key ip:192.0.2.1: by bob, program: 60/1m burst 10"},
		{"an override of another key", nil, &other, "60/1m burst 10", "Policy.Limit"},
	} {
		p := perIP("api", program)
		if tt.chosen != nil {
			p.LimitFunc = func(*http.Request) ratelimit.Limit { return *tt.chosen }
		}
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}, Logger: slog.New(slog.DiscardHandler)})
		if tt.override != nil {
			override(t, l, *tt.override)
		}
		got := l.Explain(asking("GET", "/")).Limiters[0].Policies[0]
		if got.Limit != tt.limit || !strings.HasPrefix(got.LimitWhy, tt.why) {
			t.Errorf("%s: %q by %q, want %q by %q", tt.name, got.Limit, got.LimitWhy, tt.limit, tt.why)
		}
	}
}

// Before and After are the bucket as it is, and as the request would leave it.
func TestExplainedBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := perIP("second", ratelimit.PerMinute(60).WithBurst(5))
		second.Cost = func(*http.Request) int64 { return 3 }
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{perIP("first", ratelimit.PerMinute(6)), second}}))
		defer l.Close()
		h := l.Handler(okHandler)
		check := func(want string) {
			t.Helper()
			e, got := l.Explain(asking("GET", "/")), ""
			for _, p := range e.Limiters[0].Policies {
				got += fmt.Sprintf("%s %d to %d; ", p.Outcome, p.Before.Remaining, p.After.Remaining)
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		check("allowed 6 to 5; allowed 5 to 2; ")
		get(h)
		check("not_charged 5 to 5; denied 2 to 2; ")
		if _, err := l.Block(t.Context(), second, "ip:192.0.2.1", time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		e := l.Explain(asking("GET", "/"))
		p := e.Limiters[0].Policies[1]
		if !p.Before.Blocked || p.Before.RetryAfter != time.Hour || p.Why != "the bucket is blocked for 1h0m0s" || e.Header.Get("Retry-After") != "3600" {
			t.Errorf("blocked: %+v, %v", p, e.Header)
		}
		runtime.KeepAlive(h)
	})
}

// A request that would wait is explained at once.
func TestExplainedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := perIP("api", ratelimit.Every(2*time.Second).WithBurst(1))
		p.MaxWait = 3 * time.Second
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{p}, Logger: slog.New(slog.DiscardHandler)}))
		defer l.Close()
		h := l.Handler(okHandler)
		get(h)
		began := time.Now()
		e := l.Explain(asking("GET", "/"))
		checkExplained(t, e, "Handler(api allowed) 0")
		if e.Limiters[0].Policies[0].After.Wait != 2*time.Second || !strings.HasPrefix(e.Header.Get("X-RateLimit-Waited"), "2") || e.Limiters[0].Policies[0].Why != "the request waits 2s for its tokens" {
			t.Errorf("%+v", e)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() { get(h) })
		synctest.Wait()
		e = l.Explain(asking("GET", "/"))
		checkExplained(t, e, "Handler(api denied) 429")
		if why := e.Limiters[0].Policies[0].Why; why != "the request takes 1 of 0 tokens: possible in 1s" {
			t.Errorf("why: %s", why)
		}
		if time.Since(began) != 0 {
			t.Errorf("explanations took %v", time.Since(began))
		}
		waiting.Wait()
	})
}

// A store that nobody asks otherwise may be away. Explain says so, as Handler would.
func TestExplainedDegraded(t *testing.T) {
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	defer memory.Close()
	l := newLimiter(t, ratelimit.Config{Store: ratetest.StandIn(memory), Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(2))}})
	e := l.Explain(asking("GET", "/"))
	checkExplained(t, e, "Handler(api allowed) 0")
	if !e.Degraded || !e.Limiters[0].Policies[0].After.Degraded {
		t.Errorf("%+v", e)
	}
}

// Credentials are not in an explanation, whatever functions of the program do with them, except make them a key.
func TestExplanationsHoldNoCredentials(t *testing.T) {
	members, err := jwtkey.New(hs256Config(jwtkey.BearerToken(), jwtkey.CookieToken("token"), jwtkey.HeaderToken("X-Token")))
	if err != nil {
		t.Fatal(err)
	}
	valid, expired := hs256(valid(`"sub": "5", "email": "canary@example.com"`)), hs256(`{"exp": 1, "sub": "canary"}`)
	quoting := func(r *http.Request) error {
		return fmt.Errorf("quoted: %v, %q, %v", r.Header["Authorization"], r.Header.Get("Cookie"), r.Header["Proxy-Authorization"])
	}
	for name, key := range map[string]ratelimit.KeyFunc{
		"Claim":           members.Claim("sub"),
		"A missing claim": members.Claim("org"),
		"FirstOf":         ratelimit.FirstOf(members.Claim("org"), ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP()),
		"Header":          ratelimit.Header("X-Api-Key"),
		"An error":        func(r *http.Request) (string, error) { return "", quoting(r) },
		"No key":          func(r *http.Request) (string, error) { return "", fmt.Errorf("%w: %w", ratelimit.ErrNoKey, quoting(r)) },
		"A bad request":   func(r *http.Request) (string, error) { return "", errors.Join(ratelimit.ErrBadRequest, quoting(r)) },
		"A panic":         func(r *http.Request) (string, error) { panic(quoting(r)) },
		"A panic within":  ratelimit.FirstOf(func(r *http.Request) (string, error) { panic(quoting(r)) }),
		"The library's":   func(r *http.Request) (string, error) { _, err := members.Claims(r); return "", err },
		"Wrapped": func(r *http.Request) (string, error) {
			_, err := members.Claims(r)
			return "", fmt.Errorf("mine: %w", err)
		},
		"An error in Join": ratelimit.Join(ratelimit.RemoteIP(), func(r *http.Request) (string, error) { return "", quoting(r) }),
	} {
		for _, lines := range [][]string{
			{"Authorization", "Bearer " + valid, "Cookie", "session=canary-of-a-session; token=" + expired},
			{"Authorization", "Bearer " + expired, "Proxy-Authorization", "Basic Y2FuYXJ5OmNhbmFyeQ=="},
			{"Authorization", "Bearer e30.canary-token.e30"},
			{"Authorization", "Basic Y2FuYXJ5OmNhbmFyeQ==", "Cookie", "token=" + valid},
			{"Cookie", `a="canary-of-a-cookie"`, "X-Token", valid, "X-Api-Key", "canary-of-an-api-key"},
		} {
			for _, optional := range []bool{false, true} {
				l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{
					{Name: "api", Key: key, Limit: ratelimit.PerMinute(60), Optional: optional},
					{Name: "after", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)},
				}})
				h := l.Handler(okHandler)
				e := l.Explain(requestWith(lines...))
				text, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				if len(e.Limiters) != 1 || len(e.Limiters[0].Policies) != 2 {
					t.Fatalf("%s: %s", name, text)
				}
				all := string(text) + e.String()
				for _, secret := range []string{"canary", valid, expired, "Y2FuYXJ5", "e30"} {
					if strings.Contains(all, secret) {
						t.Errorf("%s: %.20s is in %s", name, secret, text)
					}
				}
				runtime.KeepAlive(h)
			}
		}
	}
}

// A function of the program that asks others at the same time, or goes on after it has returned, can be explained while
// requests are served. Run with -race.
func TestFunctionsThatGoOnAreExplained(t *testing.T) {
	address := ratelimit.FirstOf(ratelimit.Header("X-None"), ratelimit.RemoteIP())
	left := make(chan struct{}, 1000)
	key := func(r *http.Request) (string, error) {
		asked := make(chan string)
		for range 4 {
			go func() {
				key, _ := address(r)
				select {
				case asked <- key:
				case <-time.After(time.Minute):
				}
				address(r)
				left <- struct{}{}
			}()
		}
		first := <-asked
		go func() {
			for range 3 {
				<-asked
			}
		}()
		return first, nil
	}
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{
		{Name: "api", Key: ratelimit.Join(key, ratelimit.Static("x")), Limit: ratelimit.PerMinute(10_000)},
		{Name: "other", Key: key, Limit: ratelimit.PerMinute(10_000)},
	}})
	h := l.Handler(okHandler)
	for range 10 {
		e := l.Explain(requestWith())
		if e.Status != 0 || len(e.Limiters) != 1 || e.Limiters[0].Policies[1].Key != "ip:192.0.2.1" {
			t.Fatalf("%v", e)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Fatal(err)
		}
		wantStatuses(t, h, []int{http.StatusOK})
	}
	for range 10 * 2 * 2 * 4 {
		<-left
	}
}
