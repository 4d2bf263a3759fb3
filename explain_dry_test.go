package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

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
	memory := memstore.New(memstore.Config{})
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
	program := ratelimit.PerMinute(60).WithBurst(10)
	for _, tt := range []struct {
		name       string
		chosen     *ratelimit.Limit
		override   bool
		limit, why string
	}{
		{"the program's", nil, false, "60/1m burst 10", "Policy.Limit"},
		{"a tier", &ratelimit.Limit{Rate: 5, Per: time.Second}, false, "5/1s", "LimitFunc"},
		{"a tier that is the program's", &program, false, "60/1m burst 10", "LimitFunc"},
		{"no tier", &ratelimit.Limit{}, false, "60/1m burst 10", "Policy.Limit: LimitFunc returned the zero Limit"},
		{"a malformed tier", &ratelimit.Limit{Rate: -1, Per: time.Second}, false, "60/1m burst 10", "Policy.Limit: LimitFunc returned"},
		{"an override", nil, true, "30/1m", "by alice, program: 60/1m burst 10"},
		{"an override, and a tier", &ratelimit.Limit{Rate: 5, Per: time.Second}, true, "5/1s", "LimitFunc"},
		{"an override, and no tier", &ratelimit.Limit{}, true, "30/1m", "by alice, program: 60/1m burst 10: LimitFunc returned the zero Limit"},
	} {
		p := perIP("api", program)
		if tt.chosen != nil {
			p.LimitFunc = func(*http.Request) ratelimit.Limit { return *tt.chosen }
		}
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{p}, Logger: slog.New(slog.DiscardHandler)})
		if tt.override {
			if err := l.Override(map[string]ratelimit.Limit{"api": ratelimit.PerMinute(30)}, map[string]string{"api": "by alice"}); err != nil {
				t.Fatal(err)
			}
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
	memory := memstore.New(memstore.Config{})
	defer memory.Close()
	l := newLimiter(t, ratelimit.Config{Store: ratetest.StandIn(memory), Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(2))}})
	e := l.Explain(asking("GET", "/"))
	checkExplained(t, e, "Handler(api allowed) 0")
	if !e.Degraded || !e.Limiters[0].Policies[0].After.Degraded {
		t.Errorf("%+v", e)
	}
}

// Requests are explained while others are served, and limits change. Run with -race.
func TestExplainWhileLimitsChange(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(6000))}})
	r := chi.NewRouter()
	r.Use(l.Handler)
	r.With(l.Limit(ratelimit.Policy{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerMinute(60)})).Get("/a/{id}", okHandler)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				r.ServeHTTP(httptest.NewRecorder(), asking("GET", "/a/6"))
				if e := l.Explain(askingAt("GET /a/{id}", "GET", "/a/5")); len(e.Limiters) != 2 || len(e.Unknown) > 0 {
					t.Errorf("%+v", e)
				}
			}
		})
	}
	for i := range int64(50) {
		if err := errors.Join(l.Reload(perIP("api", ratelimit.PerMinute(6000+i))), l.Override(map[string]ratelimit.Limit{"route": ratelimit.PerMinute(50 + i)}, nil)); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}
