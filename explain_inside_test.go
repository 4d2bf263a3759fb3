package ratelimit_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
)

// A Deny that logs an explanation of what it denies is called once for each request, and once by each explanation.
func TestExplainInAFunctionThatItCalls(t *testing.T) {
	var l *ratelimit.Limiter
	var all []*explain.Explanation
	denials := 0
	l = newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(1))},
		Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if denials++; denials < 10 { // an endless recursion ends the process
				all = append(all, l.Explain(r))
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}),
	})
	h := l.Handler(okHandler)
	get(h)
	if w := get(h); w.Code != http.StatusTooManyRequests || len(all) != 2 {
		t.Fatalf("%d with %d explanations, want 2", w.Code, len(all))
	}
	checkExplained(t, all[0], "0", "a function that an explanation calls has called Explain")
	checkExplained(t, all[1], "Handler(api denied) 429")
}

// A function that explains what it is asked about is called once, also with another context or another request. An
// endless recursion ends the process.
func TestExplainDoesNotRecur(t *testing.T) {
	for name, change := range map[string]func(*http.Request) *http.Request{
		"the same request": func(r *http.Request) *http.Request { return r },
		"a fresh context":  func(r *http.Request) *http.Request { return r.WithContext(context.Background()) },
		"a clone":          func(r *http.Request) *http.Request { return r.Clone(context.Background()) },
		"another request":  func(*http.Request) *http.Request { return asking("GET", "/") },
	} {
		t.Run(name, func(t *testing.T) {
			var l, other *ratelimit.Limiter
			var inner []*explain.Explanation
			calls := 0
			explains := func(l **ratelimit.Limiter) func(r *http.Request) {
				return func(r *http.Request) {
					if calls++; calls < 20 {
						inner = append(inner, (*l).Explain(change(r)))
					}
				}
			}
			recur, cross := explains(&l), explains(&other)
			api := perIP("api", ratelimit.PerDay(5))
			api.Cost = func(r *http.Request) int64 { recur(r); return 1 }
			keyed := ratelimit.Policy{Name: "key", Limit: ratelimit.PerDay(5), Key: func(r *http.Request) (string, error) { cross(r); return "a", nil }}
			l = newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api, keyed}})
			other = newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{keyed}})
			checkExplained(t, l.Explain(asking("GET", "/")), "Handler(api allowed, key allowed) 0")
			if calls != 2 || len(inner) != 2 {
				t.Fatalf("%d calls, %d explanations inside", calls, len(inner))
			}
			for _, e := range inner {
				checkExplained(t, e, "0", "a function that an explanation calls has called Explain")
			}
		})
	}
}

// The context of an explained request does not change how requests and calls that have it wait. A function of the program
// may keep it, or wait with it.
func TestAnExplainedContextWaitsInRealTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient := perIP("api", ratelimit.PerSecond(1))
		patient.MaxWait = time.Minute
		directory := ratelimit.Policy{Name: "directory", Limit: ratelimit.PerSecond(1)}
		calls := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer calls.Close()
		var kept []context.Context
		asks := false
		patient.LimitFunc = func(r *http.Request) ratelimit.Limit {
			kept = append(kept, r.Context())
			if asks {
				if _, err := calls.Wait(r.Context(), directory, "all", 1); err != nil {
					t.Error(err)
				}
			}
			return ratelimit.Limit{}
		}
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{patient}, Logger: slog.New(slog.DiscardHandler)}))
		defer l.Close()
		h := l.Handler(okHandler)
		l.Explain(asking("GET", "/"))
		began := time.Now()
		for range 5 {
			h.ServeHTTP(httptest.NewRecorder(), asking("GET", "/").WithContext(kept[0]))
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("5 requests at 1 a second took %v", took)
		}
		asks, began = true, time.Now()
		for range 5 {
			l.Explain(asking("GET", "/"))
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("5 calls at 1 a second took %v", took)
		}
	})
}

// A function may ask for the deadline of an explained request in a goroutine. Run with -race.
func TestDeadlineWhileExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient := perIP("api", ratelimit.PerSecond(1))
		patient.MaxWait = time.Minute
		patient.Cost = func(r *http.Request) int64 {
			go r.Context().Deadline()
			return 1
		}
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{patient}}))
		defer l.Close()
		h := l.Handler(okHandler)
		get(h)
		if e := l.Explain(asking("GET", "/")); e.Wait != time.Second {
			t.Errorf("%v", e)
		}
	})
}

// A server answers OPTIONS * itself, unless DisableGeneralOptionsHandler is set.
func TestExplainOptionsOfTheServer(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerDay(100))}})
	for _, disabled := range []bool{false, true} {
		reached := false
		s := httptest.NewUnstartedServer(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })))
		s.Config.DisableGeneralOptionsHandler = disabled
		s.Start()
		r, err := http.NewRequest("OPTIONS", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path = "*"
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		s.Close()
		arrives := httptest.NewRequest("OPTIONS", "*", nil)
		e := l.Explain(arrives.WithContext(context.WithValue(t.Context(), http.ServerContextKey, s.Config)))
		want := strings.Repeat("Handler(api allowed) ", len(e.Limiters)) + "0"
		checkExplained(t, e, want)
		if explained := len(e.Limiters) == 1; reached != disabled || explained != reached {
			t.Errorf("disabled %t: reached %t, explained so: %t", disabled, reached, explained)
		}
	}
}
