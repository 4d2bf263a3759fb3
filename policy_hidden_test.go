package ratelimit_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

func hidden(p ratelimit.Policy) ratelimit.Policy {
	p.Hidden = true
	return p
}

func TestHowLongARequestWaitedForAHiddenPolicyIsNotTold(t *testing.T) {
	limit := ratelimit.PerSecond(1)
	mine, secret := waiting(perIP("mine", limit), time.Minute), hidden(waiting(perIP("secret", limit), time.Minute))
	slow := hidden(waiting(perIP("secret-slow", ratelimit.PerMinute(30).WithBurst(1)), time.Minute))
	shadow := slow
	shadow.Shadow = true
	for _, tt := range []struct {
		name   string
		mount  func(*ratelimit.Limiter, http.Handler) http.Handler
		waited time.Duration
		want   string
	}{
		{"alone", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(secret)(h) }, time.Second, ""},
		{"beside another", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(mine, slow)(h) }, 2 * time.Second, ""},
		{"inside of another", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(mine)(l.Limit(slow)(h)) }, 2 * time.Second, "1.000"},
		{"where it did not", func(l *ratelimit.Limiter, h http.Handler) http.Handler {
			return l.Limit(mine, hidden(waiting(perIP("secret", ratelimit.PerHour(9)), time.Hour)))(h)
		}, time.Second, "1.000"},
		{"where nobody waits for it", func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(mine, shadow)(h) }, time.Second, "1.000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Headers: headers.Join(ratelimit.XRateLimit, headers.IETF)}, func(t *testing.T, q *queue) {
				var waited time.Duration
				h := tt.mount(q.Limiter, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					d, _ := ratelimit.FromContext(r.Context())
					waited = d.Waited
				}))
				get(h)
				w := get(h)
				if got := w.Header().Get("X-RateLimit-Waited"); w.Code != 200 || got != tt.want || waited != tt.waited {
					t.Errorf("%d, X-RateLimit-Waited %q, Decision.Waited %v; want %q and %v", w.Code, got, waited, tt.want, tt.waited)
				}
			})
		})
	}
}

func TestResultsOfHiddenPoliciesAreMarked(t *testing.T) {
	var events []*ratelimit.Event
	s := storeFunc(func(_ []store.Charge, states []store.State) bool {
		for i := range states {
			states[i] = store.State{RetryAfter: time.Second}
		}
		return false
	})
	l := newLimiter(t, ratelimit.Config{Store: s, Observe: func(_ context.Context, e *ratelimit.Event) { events = append(events, e) }})
	mine, secret := perIP("mine", ratelimit.PerHour(1)), hidden(perIP("secret", ratelimit.PerHour(1)))
	none := hidden(chosen("secret", ratelimit.PerDay(0)))
	unlimited := secret
	unlimited.Limit = ratelimit.Unlimited
	wantMarks := func(what string, results ...ratelimit.Result) {
		t.Helper()
		for _, r := range results {
			if r.Hidden != (r.Policy == "secret") {
				t.Errorf("%s: %+v", what, r)
			}
		}
	}
	for _, policies := range [][]ratelimit.Policy{{mine, secret}, {mine, none}} {
		d, err := l.Decide(requestWith(), policies...)
		if err != nil || len(d.Results) == 0 || slices.Contains(d.Denied(), "secret") {
			t.Errorf("Decide: %+v, %v", d, err)
		}
		wantMarks("Decide", d.Results...)
	}
	d, err := l.TakeAll(t.Context(), ratelimit.Charge{Policy: mine, Key: "k"}, ratelimit.Charge{Policy: secret, Key: "k"})
	if err != nil || len(d.Results) != 2 {
		t.Errorf("TakeAll: %+v, %v", d, err)
	}
	wantMarks("TakeAll", d.Results...)
	for _, p := range []ratelimit.Policy{mine, secret, unlimited} {
		r, err := l.Take(t.Context(), p, "k", 1)
		if err != nil {
			t.Error(err)
		}
		wantMarks("Take", r)
	}
	for _, p := range []ratelimit.Policy{mine, secret} {
		ended, end := context.WithCancel(t.Context())
		end()
		r, err := l.Take(ended, p, "k", 1)
		if err == nil {
			t.Error("Take in a context that has ended: no error")
		}
		wantMarks("Take", r)
	}
	if len(events) < 5 {
		t.Errorf("%d events", len(events))
	}
	for _, e := range events {
		wantMarks("Event", e.Results...)
	}
}
