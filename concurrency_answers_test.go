package ratelimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// shown returns the status and the rate limit headers of a response in a line.
func shown(status int, h http.Header) string {
	text := fmt.Sprint(status)
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
		if value := h.Get(name); value != "" {
			text += " " + strings.TrimPrefix(name, "X-RateLimit-") + " " + value
		}
	}
	return text
}

// While two requests run, a third is refused. The answers say so, and so do Usage and Explain, which take no slot.
func TestAnswersOfAConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exports := perIP("exports", ratelimit.Concurrency(2))
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{exports}})
		defer l.Close()
		other := newLimiter(t, ratelimit.Config{Store: l.Store()})
		patient := exports
		patient.MaxWait = time.Hour
		tier := perIP("exports", ratelimit.Concurrency(9))
		tier.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.Concurrency(2) }
		check := func(held int, outcome, why, patientWhy string) {
			t.Helper()
			began := time.Now()
			for p, why := range map[*ratelimit.Policy]string{&exports: why, &tier: why, &patient: patientWhy} {
				e := other.Explain(requestWith(), *p)
				got := e.Limiters[0].Policies[0]
				if got.Outcome != outcome || got.Why != why || !strings.Contains(e.String(), fmt.Sprintf("cost    1\n    before  %d of 2 slots free", 2-held)) {
					t.Errorf("with %d held: %v", held, e)
				}
			}
			if time.Since(began) != 0 {
				t.Errorf("explanations took %v", time.Since(began))
			}
			time.Sleep(time.Second) // a bucket is read ten times a second
			wantUsed(t, l.Usage(), fmt.Sprintf("exports %d", held))
		}
		var h http.Handler
		requests := 0
		request := func(want string) {
			t.Helper()
			requests++
			if w := get(h); shown(w.Code, w.Header()) != want {
				t.Errorf("%s, want %s", shown(w.Code, w.Header()), want)
			}
		}
		h = l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if requests == 1 {
				check(1, "allowed", "the request takes 1 of 1 free slots", "the request takes 1 of 1 free slots")
				request("200 Limit 2 Remaining 0")
				return
			}
			check(2, "denied", "0 of 2 slots are free", "0 of 2 slots are free: the request waits up to 1h0m0s for one, and is denied if none becomes free")
			request("429 Limit 2 Remaining 0 Retry-After 1")
			body := get(l.Usage()).Body.String()
			if want := `{"policies":[{"name":"exports","limit":2,"limit_text":"2 at once","used":2,"remaining":0}]}`; body != want {
				t.Errorf("usage: %s, want %s", body, want)
			}
		}))
		request("200 Limit 2 Remaining 1")
	})
}

// A slot of an allowed request is free again when the client has its answer. So it makes nobody wait, and is shown only if no
// rate is. A denial for slots is the shortest.
func TestDecisionsAboutSlots(t *testing.T) {
	slot := func(name string, s store.State) ratelimit.Result {
		return ratelimit.Result{Policy: name, Limit: ratelimit.Concurrency(3), Cost: 1, State: s}
	}
	rate := func(s store.State) ratelimit.Result {
		return ratelimit.Result{Policy: "rate", Limit: ratelimit.PerMinute(6), Cost: 1, State: s}
	}
	last := store.State{Allowed: true, ResetAfter: time.Second}
	denied := store.State{RetryAfter: time.Second, ResetAfter: time.Second}
	degraded, blocked := last, store.State{Blocked: true, RetryAfter: time.Hour, ResetAfter: time.Hour}
	degraded.Degraded = true
	hidden, shadow := slot("hidden", denied), slot("shadow", denied)
	hidden.Hidden, shadow.Shadow = true, true
	for name, tt := range map[string]struct {
		allowed  bool
		results  []ratelimit.Result
		tightest string
		after    time.Duration
		atOnce   bool
		waited   time.Duration // that is visible, of a second
	}{
		"the last slot":             {true, []ratelimit.Result{slot("slot", last)}, "slot", 0, false, time.Second},
		"beside a rate":             {true, []ratelimit.Result{slot("slot", last), rate(store.State{Allowed: true, Remaining: 5, ResetAfter: 10 * time.Second})}, "rate", 0, false, time.Second},
		"none free":                 {false, []ratelimit.Result{slot("slot", denied)}, "slot", time.Second, true, time.Second},
		"none free, and tokens":     {false, []ratelimit.Result{slot("slot", denied), rate(store.State{Allowed: true, Remaining: 5, ResetAfter: 10 * time.Second})}, "slot", time.Second, true, time.Second},
		"none free, and no tokens":  {false, []ratelimit.Result{slot("slot", denied), rate(store.State{RetryAfter: 9 * time.Second, ResetAfter: time.Minute})}, "rate", 9 * time.Second, false, time.Second},
		"the last slot, no tokens":  {false, []ratelimit.Result{slot("slot", last), rate(store.State{RetryAfter: time.Millisecond, ResetAfter: time.Minute})}, "rate", time.Millisecond, false, time.Second},
		"of a stand-in, no tokens":  {false, []ratelimit.Result{slot("slot", degraded), rate(store.State{RetryAfter: time.Millisecond, ResetAfter: time.Minute})}, "rate", time.Millisecond, false, time.Second},
		"a blocked key":             {false, []ratelimit.Result{slot("slot", blocked)}, "slot", time.Hour, false, time.Second},
		"a limit of 0":              {false, []ratelimit.Result{slot("slot", store.State{RetryAfter: ratelimit.Never})}, "slot", ratelimit.Never, false, time.Second},
		"none free of a hidden one": {false, []ratelimit.Result{hidden, slot("slot", last)}, "slot", time.Second, false, 0},
		"none free of a shadow":     {true, []ratelimit.Result{shadow, slot("slot", last)}, "slot", 0, false, time.Second},
	} {
		d := &ratelimit.Decision{Allowed: tt.allowed, Results: tt.results, Waited: time.Second}
		if got := d.Tightest(); got.Policy != tt.tightest {
			t.Errorf("%s: the tightest is %s, want %s", name, got.Policy, tt.tightest)
		}
		if d.RetryAfter() != tt.after || d.AtOnce() != tt.atOnce || d.VisibleWait() != tt.waited {
			t.Errorf("%s: retry after %v, at once %v, visible wait %v", name, d.RetryAfter(), d.AtOnce(), d.VisibleWait())
		}
	}
	for tokens, want := range map[int64]time.Duration{0: 0, 1: time.Second} {
		if r := slot("slot", last); r.Until(tokens) != want {
			t.Errorf("%d slots are free in %v, want %v", tokens, r.Until(tokens), want)
		}
	}
}

// A concurrency limit in a route leaves no Reset of the rate around it.
func TestStackedHeadersOfAConcurrencyLimit(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	defer l.Close()
	slots := l.Limit(perIP("exports", ratelimit.Concurrency(1)))
	var h http.Handler
	h = l.Limit(perIP("api", ratelimit.PerHour(10)))(slots(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if w := get(h); shown(w.Code, w.Header()) != "429 Limit 1 Remaining 0 Retry-After 1" {
			t.Errorf("within: %s", shown(w.Code, w.Header()))
		}
	})))
	if w := get(h); w.Header().Get("X-RateLimit-Limit") != "10" || w.Header().Get("X-RateLimit-Reset") == "" {
		t.Errorf("around: %s", shown(w.Code, w.Header()))
	}
}
