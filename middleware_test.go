package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandlerLimitsEachKeyByItself(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		h := newLimiter(t, ratelimit.Config{
			Store:    s,
			Policies: []ratelimit.Policy{perIP("api", ratelimit.PerSecond(1).WithBurst(2))},
		}).Handler(okHandler)
		wantStatuses(t, h, []int{200, 200, 429, 429}, from("192.0.2.1"))
		wantStatuses(t, h, []int{200, 200, 429}, from("192.0.2.2"))
		c.Advance(time.Second)
		wantStatuses(t, h, []int{200, 429}, from("192.0.2.1"))
	})
}

func TestADenialSaysWhyAndWhen(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		h := newLimiter(t, ratelimit.Config{
			Store:    s,
			Policies: []ratelimit.Policy{perIP("api", ratelimit.Every(90*time.Second)), perIP("wide", ratelimit.PerSecond(100))},
		}).Handler(okHandler)
		get(h)
		w := get(h)
		for name, want := range map[string]string{
			"Retry-After":           "90",
			"Cache-Control":         "no-store",
			"X-Ratelimit-Limit":     "1",
			"X-Ratelimit-Remaining": "0",
			"Content-Type":          "application/problem+json",
		} {
			if got := w.Header().Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if body["type"] != "https://iana.org/assignments/http-problem-types#quota-exceeded" || body["status"] != 429.0 || body["title"] == "" {
			t.Errorf("body %v", body)
		}
		if got, _ := json.Marshal(body["violated-policies"]); string(got) != `["api"]` {
			t.Errorf("violated-policies is %s", got)
		}

		head := get(h, method("HEAD"))
		if head.Code != 429 || head.Body.Len() != 0 || head.Header().Get("Retry-After") != "90" {
			t.Errorf("HEAD: %d, body %q, header %v", head.Code, head.Body, head.Header())
		}
	})
}

func TestADenialByOnePolicySpendsNothingOfTheOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		wide, narrow := perIP("wide", ratelimit.PerHour(100)), perIP("narrow", ratelimit.PerHour(3))
		l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{wide, narrow}})
		wantStatuses(t, l.Handler(okHandler), []int{200, 200, 200, 429, 429, 429}, from("192.0.2.1"))
		r, err := l.Peek(t.Context(), wide, "ip:192.0.2.1")
		if err != nil || r.Remaining != 97 {
			t.Errorf("wide has %d left, error %v, want 97", r.Remaining, err)
		}
	})
}

func TestAllPoliciesOfARequestAreOneCall(t *testing.T) {
	s := &recorder{Store: generous{}}
	l := newLimiter(t, ratelimit.Config{Store: s})
	get(l.Limit(perIP("a", ratelimit.PerSecond(1)), perIP("b", ratelimit.PerSecond(1)), perIP("c", ratelimit.PerSecond(1)))(okHandler))
	if len(s.Calls) != 1 || len(s.Calls[0]) != 3 {
		t.Errorf("calls %+v, want 1 of 3 charges", s.Calls)
	}
}

func TestShadowPoliciesMeasureAndDoNotDeny(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		var seen []*ratelimit.Event
		shadow := perIP("shadow", ratelimit.PerHour(1))
		shadow.Shadow = true
		h := newLimiter(t, ratelimit.Config{
			Store:    s,
			Policies: []ratelimit.Policy{shadow, perIP("api", ratelimit.PerHour(3))},
			Observe:  func(_ context.Context, e *ratelimit.Event) { seen = append(seen, e) },
		}).Handler(okHandler)
		// An exhausted shadow hides neither an allowed request nor a denied one.
		wantStatuses(t, h, []int{200, 200, 200, 429})
		w := get(h)
		if got := w.Header().Get("X-RateLimit-Limit"); got != "3" {
			t.Errorf("X-RateLimit-Limit is %q, want the enforced policy's", got)
		}
		if strings.Contains(w.Body.String(), "shadow") {
			t.Errorf("the body tells of the shadow: %s", w.Body)
		}
		var shadows []bool
		for _, e := range seen {
			shadows = append(shadows, e.Results[0].Allowed)
		}
		if want := []bool{true, false, false, false, false}; !slices.Equal(shadows, want) {
			t.Errorf("the shadow allowed %v, want %v", shadows, want)
		}
	})
}

func TestSkippedRequestsAreNotLimited(t *testing.T) {
	h := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1))},
		Skip:     func(r *http.Request) bool { return r.Header.Get("Health") != "" },
	}).Handler(okHandler)
	wantStatuses(t, h, []int{200, 429})
	wantStatuses(t, h, []int{200, 200}, with("Health", "1"))
	wantStatuses(t, h, []int{429}, preflight...)
}

func TestWithoutAKey(t *testing.T) {
	wrapped := fmt.Errorf("token: %w", ratelimit.ErrNoKey)
	for name, key := range map[string]ratelimit.KeyFunc{"ErrNoKey": noKey, "an empty key": finds("", nil), "wrapped": finds("", wrapped)} {
		t.Run(name, func(t *testing.T) {
			p := ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1)}
			other := perIP("other", ratelimit.PerHour(1))
			l := newLimiter(t, ratelimit.Config{})
			if d, err := l.Decide(requestWith(), p); d.Allowed || !errors.Is(err, ratelimit.ErrNoKey) || len(d.Results) != 0 {
				t.Errorf("Decide: %+v, %v", d, err)
			}

			w := get(l.Limit(p, other)(okHandler))
			if w.Code != 403 || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			if strings.Contains(w.Body.String(), "key") {
				t.Errorf("the body tells of the inside: %s", w.Body)
			}

			p.Optional = true
			wantStatuses(t, l.Limit(p, other)(okHandler), []int{200, 429}) // the other policy goes on
			wantStatuses(t, l.Limit(p)(okHandler), []int{200, 200})

			p.Optional, p.Shadow = false, true
			wantStatuses(t, l.Limit(p)(okHandler), []int{200, 200})
		})
	}
}

func TestAFailedStore(t *testing.T) {
	var logged bytes.Buffer
	var seen []*ratelimit.Event
	failure := errors.New("WRONGTYPE secret internals")
	l := newLimiter(t, ratelimit.Config{
		Store:   failing(func() error { return failure }),
		Logger:  slog.New(slog.NewTextHandler(&logged, nil)),
		Observe: func(_ context.Context, e *ratelimit.Event) { seen = append(seen, e) },
	})
	open, closed := perIP("open", ratelimit.PerHour(1)), perIP("closed", ratelimit.PerHour(1))
	closed.FailClosed = true

	w := get(l.Limit(open)(okHandler))
	if w.Code != 200 || w.Header()["X-Ratelimit-Limit"] != nil {
		t.Errorf("open: %d %v, want 200 without invented numbers", w.Code, w.Header())
	}
	w = get(l.Limit(open, closed)(okHandler))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("closed: %d %v", w.Code, w.Header())
	}
	if body := w.Body.String(); strings.Contains(body, "WRONGTYPE") || !strings.Contains(body, "#temporary-reduced-capacity") {
		t.Errorf("closed: body %s", body)
	}
	shadow := closed
	shadow.Shadow = true
	if w := get(l.Limit(shadow)(okHandler)); w.Code != 200 {
		t.Errorf("a shadow refused: %d", w.Code)
	}

	if len(seen) != 3 || !errors.Is(seen[0].Err, failure) || !seen[0].Allowed || seen[1].Allowed {
		t.Errorf("events %+v", seen)
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 1 || !strings.Contains(logged.String(), "WRONGTYPE") {
		t.Errorf("want one line for the same failure within a second, got:\n%s", logged.String())
	}
}

// What a client can make a policy's own functions do must not open the others.
func TestAPolicyThatFailsDoesNotSwitchOffTheOthers(t *testing.T) {
	var seen ratelimit.Event
	l := newLimiter(t, ratelimit.Config{
		Logger:  slog.New(slog.DiscardHandler),
		Observe: func(_ context.Context, e *ratelimit.Event) { seen = *e },
	})
	enforced := perIP("enforced", ratelimit.PerHour(1))
	keyless, negative := perIP("p", ratelimit.PerHour(100)), perIP("p", ratelimit.PerHour(100))
	keyless.Key = finds("", ratelimit.ErrOutage)
	shadow := keyless
	shadow.Key, shadow.Shadow = finds("", errors.New("broken")), true
	tierless := perIP("p", ratelimit.Limit{})
	tierless.Shadow, tierless.LimitFunc = true, func(*http.Request) ratelimit.Limit { return ratelimit.PerHour(-5) }
	cost := int64(-1)
	negative.Cost = func(*http.Request) int64 { return cost }
	for i, p := range []ratelimit.Policy{keyless, shadow, tierless} {
		addr := from("192.0.2." + string(rune('1'+i)))
		wantStatuses(t, l.Limit(p, enforced)(okHandler), []int{200, 429, 429}, addr)
		if seen.Err == nil || len(seen.Results) != 1 || seen.Allowed {
			t.Errorf("event %+v, want the error beside what was decided", seen)
		}
		p.FailClosed = true
		want := 503
		if p.Shadow {
			want = 429
		}
		wantStatuses(t, l.Limit(p, enforced)(okHandler), []int{want}, addr)
	}
	for _, cost = range []int64{-1, math.MinInt64} {
		if w := get(l.Limit(negative)(okHandler)); w.Code != 429 || w.Header()["Retry-After"] != nil {
			t.Errorf("a cost of %d: %d, to be retried after %q", cost, w.Code, w.Header()["Retry-After"])
		}
	}
}

// A client that sends the end of its body late could otherwise have as many requests as it likes uncounted.
func TestARequestWithoutTimeLeftIsRefusedWhateverThePolicy(t *testing.T) {
	ended, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request without time left went on") })
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		backed := ratelimit.Must(fallback.New(s, nil, fallback.Config{Failures: 1, Slow: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)}))
		defer backed.Close()
		for name, s := range map[string]store.Store{"plain": s, "fallback": backed} {
			var log bytes.Buffer
			l := newLimiter(t, ratelimit.Config{Store: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			open := perIP("open", ratelimit.PerHour(9))
			closed, settled, queued, shadow := open, open, open, open
			closed.Name, closed.FailClosed = "closed", true
			settled.Name, settled.Settle = "settled", ratelimit.FailedLogins
			queued.Name, queued.MaxWait = "queued", time.Minute
			shadow.Name, shadow.Shadow = "shadow", true
			for _, p := range []ratelimit.Policy{open, closed, settled, queued} {
				w := httptest.NewRecorder()
				l.Limit(p, shadow)(never).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ended))
				if w.Code != 503 || w.Header().Get("Retry-After") == "" {
					t.Errorf("%s, %s: %d %v, want 503", name, p.Name, w.Code, w.Header())
				}
				d, err := l.Decide(httptest.NewRequest("GET", "/", nil).WithContext(ended), p)
				if d.Allowed || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: Decide %+v, %v", name, p.Name, d, err)
				}
				if r, err := l.Take(ended, p, "k", 1); r.Allowed || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: Take %+v, %v", name, p.Name, r, err)
				}
				if r, err := l.Peek(t.Context(), p, "ip:192.0.2.1"); err != nil || r.Remaining != 9 {
					t.Errorf("%s, %s: %d remain, error %v", name, p.Name, r.Remaining, err)
				}
			}
			w := httptest.NewRecorder()
			l.Limit(shadow)(okHandler).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ended))
			if w.Code != 200 {
				t.Errorf("%s: a shadow refused: %d", name, w.Code)
			}
			if !strings.Contains(log.String(), "no time left") {
				t.Errorf("%s: log %q", name, log.String())
			}
		}
		if err := backed.Away(); err != nil {
			t.Errorf("the breaker opened: %v", err)
		}
	})
}

// Load that clients can make must not open a limit.
func TestWantOfProcessorTimeRefusesWhateverThePolicy(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{
		Store:  failing(func() error { return fmt.Errorf("%w: %w", store.ErrOverloaded, context.DeadlineExceeded) }),
		Logger: slog.New(slog.DiscardHandler),
	})
	open, shadow := perIP("open", ratelimit.PerHour(9)), perIP("shadow", ratelimit.PerHour(9))
	shadow.Shadow = true
	if w := get(l.Limit(open, shadow)(okHandler)); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	wantStatuses(t, l.Limit(shadow)(okHandler), []int{200})
}

// A Store that leaves fields of a State alone must not find another request's in them.
func TestStatesAreNew(t *testing.T) {
	dirty, stale := true, false
	s := storeFunc(func(charges []store.Charge, states []store.State) bool {
		if len(states) != len(charges) {
			t.Errorf("%d states for %d charges", len(states), len(charges))
		}
		for i := range states {
			stale = stale || states[i] != store.State{}
			states[i].Degraded = dirty
		}
		return true
	})
	l := newLimiter(t, ratelimit.Config{Store: s})
	get(l.Limit(perIP("a", ratelimit.PerHour(1)), perIP("b", ratelimit.PerHour(1)))(okHandler))
	dirty = false
	get(l.Limit(perIP("a", ratelimit.PerHour(1)))(okHandler))
	if stale {
		t.Error("a call began with states of another")
	}
}

func TestFailuresAreLoggedOnceASecondAndKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		failure := errors.New("EOF")
		l := newLimiter(t, ratelimit.Config{
			Store:  failing(func() error { return failure }),
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		defer l.Close()
		h := l.Limit(perIP("a", ratelimit.PerHour(1)))(okHandler)
		lines := func() int {
			defer logged.Reset()
			return strings.Count(logged.String(), "\n")
		}
		for i := range 100 { // alternating, and with a port that differs
			if failure = errors.New("EOF"); i%2 == 0 {
				failure = fmt.Errorf("read tcp 127.0.0.1:%d: connection reset", 40000+i)
			}
			get(h)
		}
		if n := lines(); n != 2 {
			t.Errorf("%d lines of two kinds of failure", n)
		}
		for i := range 100 { // texts without end
			failure = errors.New(strings.Repeat("x", i))
			get(h)
		}
		if n := lines(); n > 16 {
			t.Errorf("%d lines of many kinds", n)
		}
		time.Sleep(time.Second)
		failure = errors.New("EOF")
		get(h)
		if text := logged.String(); !strings.Contains(text, "not_logged_since=49") {
			t.Errorf("a second later: %q, want the 49 that were left out", text)
		}
	})
}

func TestAStandInIsNotEnoughForFailClosed(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	l := newLimiter(t, ratelimit.Config{Store: ratetest.StandIn(s), Logger: slog.New(slog.DiscardHandler)})
	open, closed := perIP("open", ratelimit.PerHour(1)), perIP("closed", ratelimit.PerHour(9))
	closed.FailClosed = true
	wantStatuses(t, l.Limit(open)(okHandler), []int{200, 429})
	wantStatuses(t, l.Limit(closed)(okHandler), []int{503})
}

// Whoever hangs up has used what it asked for, and is limited like any other.
func TestAClientThatWentAwayPaysAndIsNoOutage(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		var logged bytes.Buffer
		p := perIP("api", ratelimit.PerHour(5))
		backed := ratelimit.Must(fallback.New(s, nil, fallback.Config{Failures: 1, Slow: 5 * time.Second}))
		defer backed.Close()
		l := newLimiter(t, ratelimit.Config{Store: backed, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		served := 0
		h := l.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		}
		if served != 5 || logged.Len() != 0 || backed.Away() != nil {
			t.Errorf("%d served, log %q, away: %v", served, logged.String(), backed.Away())
		}
	})
}

func TestStackedLimitersMergeTheirHeaders(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{perIP("outer", ratelimit.PerMinute(4))}})
		inner := newLimiter(t, ratelimit.Config{Store: s})
		var inHandler []string
		h := l.Handler(inner.Limit(perIP("inner", ratelimit.PerMinute(60).WithBurst(2)))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			d, _ := ratelimit.FromContext(r.Context())
			inHandler = nil
			for _, r := range d.Results {
				inHandler = append(inHandler, r.Policy)
			}
		})))
		want := func(code int, limit, remaining string) {
			t.Helper()
			w := get(h)
			if w.Code != code {
				t.Errorf("status %d, want %d", w.Code, code)
			}
			if got := w.Header().Values("X-RateLimit-Limit"); !slices.Equal(got, []string{limit}) {
				t.Errorf("X-RateLimit-Limit is %q, want %s once", got, limit)
			}
			if got := w.Header().Values("X-RateLimit-Remaining"); !slices.Equal(got, []string{remaining}) {
				t.Errorf("X-RateLimit-Remaining is %q, want %s once", got, remaining)
			}
		}
		want(200, "2", "1") // the inner is tighter
		if !slices.Equal(inHandler, []string{"outer", "inner"}) {
			t.Errorf("FromContext tells of %v", inHandler)
		}
		want(200, "2", "0")
		c.Advance(2 * time.Second)
		want(200, "4", "1") // now the outer is
		want(200, "4", "0")
		want(429, "4", "0") // denied by the outer
	})
}

func TestRetryAfterOfADenialInsideIncludesTheOuterLimiter(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{perIP("outer", ratelimit.PerMinute(6).WithBurst(2))}})
		h := l.Handler(l.Limit(perIP("inner", ratelimit.PerSecond(1)))(okHandler))
		wantStatuses(t, h, []int{200})
		w := get(h) // the inner has a token again after 1 s, the outer after 10
		if w.Code != 429 || w.Header().Get("Retry-After") != "10" {
			t.Errorf("%d, Retry-After %q, want 429 and 10", w.Code, w.Header().Get("Retry-After"))
		}
		c.Advance(10 * time.Second)
		wantStatuses(t, h, []int{200})
	})
}

func TestDenyAndErrorHandlersOfOnesOwn(t *testing.T) {
	var refused error
	l := newLimiter(t, ratelimit.Config{
		Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d, ok := ratelimit.FromContext(r.Context())
			if !ok || d.Allowed || d.RetryAfter() <= 0 || !slices.Equal(d.Denied(), []string{"api"}) {
				t.Errorf("FromContext in Deny: %+v, %t", d, ok)
			}
			w.WriteHeader(418)
		}),
		Error: func(w http.ResponseWriter, _ *http.Request, err error) {
			refused = err
			w.WriteHeader(401)
		},
	})
	h := l.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler)
	get(h)
	w := get(h)
	if w.Code != 418 || w.Header().Get("Retry-After") != "3600" || w.Header().Get("X-RateLimit-Limit") != "1" {
		t.Errorf("Deny: %d %v", w.Code, w.Header())
	}
	w = get(l.Limit(ratelimit.Policy{Name: "api", Key: noKey, Limit: ratelimit.PerHour(1)})(okHandler))
	if w.Code != 401 || !errors.Is(refused, ratelimit.ErrNoKey) {
		t.Errorf("Error: %d, %v", w.Code, refused)
	}
}

func TestFromContextOutsideOfALimiter(t *testing.T) {
	if d, ok := ratelimit.FromContext(t.Context()); ok || d != nil {
		t.Errorf("%v, %t", d, ok)
	}
}

// The response writer is not wrapped: what the server's can do, a handler behind limiters can.
func TestHandlersKeepTheServersResponseWriter(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("outer", ratelimit.PerHour(10))},
		Skip:     func(r *http.Request) bool { return r.URL.Path == "/skipped" },
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		io.WriteString(w, "data\n")
		if err := errors.Join(c.SetWriteDeadline(time.Now().Add(time.Minute)), c.Flush()); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(conn, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		conn.Close()
	})
	mux.Handle("/skipped", okHandler)
	server := httptest.NewServer(l.Handler(l.Limit(perIP("inner", ratelimit.PerHour(3)))(mux)))
	defer server.Close()
	for _, want := range []struct {
		path   string
		status int
	}{{"/stream", 200}, {"/hijack", 418}, {"/none", 404}, {"/stream", 429}, {"/skipped", 200}, {"/hijack", 429}} {
		response, err := server.Client().Get(server.URL + want.path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want.status {
			t.Errorf("%s: %d, want %d", want.path, response.StatusCode, want.status)
		}
	}
}

func TestNewRefusesATimeoutInWhichAHungPrimaryIsNotNoticed(t *testing.T) {
	f := ratelimit.Must(fallback.New(failing(func() error { return errors.New("broken") }), nil, fallback.Config{}))
	defer f.Close()
	leased := ratelimit.Must(lease.New(f, lease.Config{}))
	defer leased.Close()
	for name, s := range map[string]store.Store{
		"a fallback":       f,
		"inside of others": ratelimit.Must(denialcache.New(leased, denialcache.Config{})),
	} {
		_, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: 49 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "Timeout 49ms: must not be shorter than the fallback.Config.Slow of Store, 50ms") {
			t.Errorf("%s: error %v", name, err)
		}
		if _, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: 50 * time.Millisecond}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStatsCountTheRequestsThatWait(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(1)), time.Minute)
	inBubble(t, ratelimit.Config{MaxWaiting: 8}, func(t *testing.T, q *queue) {
		want := func(waiting int) {
			t.Helper()
			if s := q.Stats(); s.Waiting != waiting || s.MaxWaiting != 8 {
				t.Errorf("%d of %d wait, want %d of 8", s.Waiting, s.MaxWaiting, waiting)
			}
		}
		want(0)
		h := q.Limit(p)(okHandler)
		first, second := arrive(h, t.Context()), arrive(h, t.Context())
		want(1)
		third := arrive(h, t.Context())
		want(2)
		ctx, stop := context.WithCancel(t.Context())
		go q.Wait(ctx, p, "another", 1)
		synctest.Wait()
		want(2) // it had its token at once
		go q.WaitAll(ctx, ratelimit.Charge{Policy: p, Key: "another"})
		synctest.Wait()
		want(3)
		stop()
		synctest.Wait()
		want(2)
		third.Leave()
		synctest.Wait()
		want(1)
		first.Want(t, 200, 0)
		second.Want(t, 200, time.Second)
		want(0)
	})
}

func TestTheDefaultOfMaxWaitingIsInTheStats(t *testing.T) {
	if s := newLimiter(t, ratelimit.Config{}).Stats(); s.Waiting != 0 || s.MaxWaiting != 1024 {
		t.Errorf("%+v", s)
	}
}

// reporting is a Store with Stats.
type reporting struct{ store.Store }

func (reporting) Stats() store.Stats {
	return store.Stats{Denials: &store.DenialStats{Answered: 7}, Waiting: 99}
}

// wrapped is a decorator of somebody who knows nothing of Stats.
type wrapped struct{ store.Store }

func (w wrapped) Unwrap() store.Store { return w.Store }

func TestStatsAreThoseOfTheStoreThroughWhatWrapsIt(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	for name, outer := range map[string]store.Store{"the store": reporting{s}, "a decorator": wrapped{wrapped{reporting{s}}}} {
		got := newLimiter(t, ratelimit.Config{Store: outer}).Stats()
		if got.Denials == nil || got.Denials.Answered != 7 || got.Waiting != 0 || got.MaxWaiting != 1024 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, foreign := range map[string]store.Store{"a foreign store": bare{Store: s}, "wrapped": wrapped{bare{Store: s}}, "nothing inside": wrapped{}} {
		if got := newLimiter(t, ratelimit.Config{Store: foreign}).Stats(); got != (store.Stats{MaxWaiting: 1024}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// BenchmarkHandler is the whole middleware on memory, for requests that are allowed.
func BenchmarkHandler(b *testing.B) {
	for _, by := range []struct {
		name string
		key  ratelimit.KeyFunc
	}{
		{"RemoteIP", ratelimit.RemoteIP()},
		{"ClientIP", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})},
		{"Header", ratelimit.Header("X-Api-Key")},
	} {
		b.Run(by.name, func(b *testing.B) {
			l := ratelimit.Must(ratelimit.New(ratelimit.Config{
				Policies: []ratelimit.Policy{{Name: "api", Key: by.key, Limit: ratelimit.PerHour(1_000_000_000)}},
			}))
			defer l.Close()
			h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			var clients atomic.Int32
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				client := fmt.Sprintf("192.0.2.%d", clients.Add(1))
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.RemoteAddr = client + ":34567"
				if by.name == "ClientIP" {
					r.RemoteAddr = "10.0.0.1:34567"
					r.Header.Set("X-Forwarded-For", client)
				}
				r.Header.Set("X-Api-Key", client)
				w := unseen{}
				for pb.Next() {
					clear(w)
					h.ServeHTTP(w, r)
				}
			})
		})
	}
}

// An unseen is a response that nobody reads.
type unseen http.Header

func (w unseen) Header() http.Header { return http.Header(w) }

func (w unseen) Write(b []byte) (int, error) { return len(b), nil }

func (w unseen) WriteHeader(int) {}
