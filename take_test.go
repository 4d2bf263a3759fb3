package ratelimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestTakePeekRefundReset(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerMinute(60).WithBurst(10)}
		want := func(r ratelimit.Result, err error) func(allowed bool, remaining int64) {
			return func(allowed bool, remaining int64) {
				t.Helper()
				if err != nil || r.Allowed != allowed || r.Remaining != remaining || r.Policy != "jobs" || r.Key != "member:5" {
					t.Errorf("%+v, error %v, want allowed %t with %d left", r, err, allowed, remaining)
				}
			}
		}
		ctx := t.Context()
		want(l.Take(ctx, p, "member:5", 7))(true, 3)
		want(l.Take(ctx, p, "member:5", 4))(false, 3)
		want(l.Take(ctx, p, "member:5", 0))(true, 3)
		want(peeked(l.Peek(ctx, p, "member:5")))(true, 3)
		want(l.Refund(ctx, p, "member:5", 2))(true, 5)
		c.Advance(time.Second)
		want(peeked(l.Peek(ctx, p, "member:5")))(true, 6)
		want(l.Reset(ctx, p, "member:5"))(true, 10)
		want(l.Take(ctx, p, "member:5", 10))(true, 0)

		p.Limit = ratelimit.Unlimited
		if r, err := l.Take(ctx, p, "member:5", 100); err != nil || !r.Allowed {
			t.Errorf("unlimited: %+v, %v", r, err)
		}
	})
}

// Work is often not done because its context has ended.
func TestRefundWorksAfterItsContextHasEnded(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerHour(10), FailClosed: true}
		cancelled, cancel := context.WithCancel(t.Context())
		late, stop := context.WithDeadline(t.Context(), time.Now())
		defer stop()
		if _, err := l.Take(cancelled, p, "member:5", 10); err != nil {
			t.Fatal(err)
		}
		cancel()
		for i, ctx := range []context.Context{cancelled, late} {
			if r, err := l.Refund(ctx, p, "member:5", 2); err != nil || !r.Allowed || r.Remaining != int64(2*i+2) {
				t.Errorf("after %v: %+v, error %v", ctx.Err(), r, err)
			}
			if r, err := l.Take(ctx, p, "member:5", 1); !errors.Is(err, ctx.Err()) || r.Allowed {
				t.Errorf("a Take after %v: %+v, error %v", ctx.Err(), r, err)
			}
		}
	})
}

// It takes no longer than Config.Timeout.
func TestRefundWithAHungStoreEndsAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, ratelimit.Config{Store: stalling{}, Timeout: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		_, err := l.Refund(ctx, ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerHour(10)}, "member:5", 2)
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("error %v after %v, want one after a second", err, took)
		}
	})
}

func TestTakeAndPeekInALimitedRequestReturnTheirOwnResults(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	jobs := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerHour(10)}
	served := false
	get(l.Limit(perIP("outer", ratelimit.PerHour(100)))(l.Limit(perIP("inner", ratelimit.PerHour(50)))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		served = true
		for name, call := range map[string]func() (ratelimit.Result, error){
			"Take": func() (ratelimit.Result, error) { return l.Take(r.Context(), jobs, "member:5", 4) },
			"Wait": func() (ratelimit.Result, error) { return l.Wait(r.Context(), jobs, "member:6", 4) },
		} {
			got, err := call()
			if err != nil || got.Policy != "jobs" || got.Limit != jobs.Limit || got.Cost != 4 || got.Remaining != 6 {
				t.Errorf("%s: %+v, error %v", name, got, err)
			}
		}
		if got, err := l.Peek(r.Context(), jobs, "member:5"); err != nil || got.Policy != "jobs" || got.Key != "member:5" || got.Remaining != 6 {
			t.Errorf("Peek: %+v, error %v", got, err)
		}
		if got, err := l.Take(r.Context(), jobs, "member:5", 7); err != nil || got.Allowed || got.Policy != "jobs" {
			t.Errorf("a denied Take: %+v, error %v", got, err)
		}
		// What the request was told of its own stays.
		if d, _ := ratelimit.FromContext(r.Context()); len(d.Results) != 2 || !d.Allowed {
			t.Errorf("the decision of the request is %+v", d)
		}
	}))))
	if !served {
		t.Error("the request was not served")
	}
}

func TestWrongArgumentsOfCalls(t *testing.T) {
	l := quiet(t)
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerMinute(60)}
	tier, malformed, patient := p, p, waiting(p, -1)
	tier.Limit, tier.LimitFunc = ratelimit.Limit{}, func(*http.Request) ratelimit.Limit { return ratelimit.PerMinute(60) }
	malformed.Limit = ratelimit.PerMinute(-1)
	take := func(p ratelimit.Policy, key string, cost int64) func() (ratelimit.Result, error) {
		return func() (ratelimit.Result, error) { return l.Take(t.Context(), p, key, cost) }
	}
	for _, tt := range []struct {
		call  func() (ratelimit.Result, error)
		wants []string
	}{
		{take(ratelimit.Policy{}, "", 1), []string{"Take: ", "Name: ", "Limit: must be set", "key: must not be empty"}},
		{take(ratelimit.Policy{Name: "two words", Limit: p.Limit}, "k", 1), []string{"Take: ", "Name: "}},
		{take(p, "k", -1), []string{"Take: cost -1: must be 0 or more; see Refund"}},
		{take(tier, "k", 1), []string{"Take: ", "Limit: must be set"}}, // its LimitFunc is not called
		{take(malformed, "k", 1), []string{"Take: ", "Limit: Rate -1"}},
		{func() (ratelimit.Result, error) { return l.Refund(t.Context(), p, "k", 0) }, []string{"Refund: n 0: must be above 0"}},
		{func() (ratelimit.Result, error) { return l.Wait(t.Context(), p, "k", -1) }, []string{"Wait: cost -1: must"}},
		{func() (ratelimit.Result, error) { return l.Wait(t.Context(), patient, "", 1) }, []string{"Wait: ", "MaxWait -1ns: must not be negative", "key: "}},
		{func() (ratelimit.Result, error) { return peeked(l.Peek(t.Context(), ratelimit.Policy{}, "k")) }, []string{"Peek: ", "Name: "}},
		{func() (ratelimit.Result, error) { return peeked(l.Peek(t.Context(), malformed, "k")) }, []string{"Peek: ", "Limit: "}},
		{func() (ratelimit.Result, error) { return l.Reset(t.Context(), ratelimit.Policy{}, "k") }, []string{"Reset: ", "Name: "}},
		{func() (ratelimit.Result, error) { return l.Reset(t.Context(), malformed, "k") }, []string{"Reset: ", "Limit: "}},
	} {
		r, err := tt.call()
		if err == nil || r.Allowed {
			t.Errorf("%+v, error %v; want an error about %q", r, err, tt.wants)
			continue
		}
		checkText(t, err.Error(), tt.wants...)
	}
}

// An open policy allows what the Store has not decided about, and one that fails closed denies it. Reset and Peek are no
// exception.
func TestCallsWithAFailedStore(t *testing.T) {
	failure := errors.New("away")
	l := newLimiter(t, ratelimit.Config{Store: failing(func() error { return failure }), Logger: slog.New(slog.DiscardHandler)})
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerMinute(60)}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, closed := range []bool{false, true} {
		p.FailClosed = closed
		for name, call := range map[string]func(context.Context) (ratelimit.Result, error){
			"Take":   func(ctx context.Context) (ratelimit.Result, error) { return l.Take(ctx, p, "k", 1) },
			"Refund": func(ctx context.Context) (ratelimit.Result, error) { return l.Refund(ctx, p, "k", 1) },
			"Wait":   func(ctx context.Context) (ratelimit.Result, error) { return l.Wait(ctx, p, "k", 1) },
			"Peek":   func(ctx context.Context) (ratelimit.Result, error) { return peeked(l.Peek(ctx, p, "k")) },
			"Reset":  func(ctx context.Context) (ratelimit.Result, error) { return l.Reset(ctx, p, "k") },
		} {
			if r, err := call(t.Context()); !errors.Is(err, failure) || r.Allowed == closed || r.Limit != p.Limit {
				t.Errorf("%s, closed %t: %+v, %v", name, closed, r, err)
			}
			if r, err := call(ended); name != "Refund" && (r.Allowed || !errors.Is(err, context.Canceled)) {
				t.Errorf("%s, closed %t, in a context that has ended: %+v, %v", name, closed, r, err)
			}
		}
	}
}

// A call that waits, or is settled later, goes on until it is answered. Calls are reused, and the next one may end with its
// context.
func TestACallEndsWithItsContextAfterOneThatStayed(t *testing.T) {
	plain := perIP("plain", ratelimit.PerHour(1))
	for name, before := range map[string]ratelimit.Policy{
		"waits":   waiting(perIP("api", ratelimit.PerHour(1)), time.Minute),
		"settles": settled("api", ratelimit.PerHour(1), asCharged),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Store: stalling{}}, func(t *testing.T, q *queue) {
				for range 20 { // the pool may lose some
					get(q.Limit(before)(okHandler))
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					arrive(q.Limit(plain)(okHandler), ctx).Want(t, http.StatusServiceUnavailable, 20*time.Millisecond)
					cancel()

					get(q.Limit(before)(okHandler))
					ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
					begin := time.Now()
					if _, err := q.Take(ctx, plain, address, 1); err == nil || time.Since(begin) != time.Millisecond {
						t.Errorf("error %v after %v, want the context's after 1ms", err, time.Since(begin))
					}
					cancel()
				}
			})
		})
	}
}

// A call is compiled for its own limit, not for that of the call before.
func TestATakeGoesByItsOwnLimit(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	take := func(key string, limit ratelimit.Limit) (ratelimit.Result, error) {
		return l.Take(t.Context(), ratelimit.Policy{Name: "jobs", Limit: limit}, key, 1)
	}
	for range 20 { // the pool may lose some
		for key, burst := range map[string]int64{"member:5": 1000, "member:6": 2000} {
			if r, err := take(key, ratelimit.PerHour(1).WithBurst(burst)); r.Remaining/1000 != burst/1000-1 || err != nil {
				t.Errorf("a burst of %d: %+v, error %v", burst, r, err)
			}
		}
		for _, wrong := range []ratelimit.Limit{{}, {Rate: -1, Per: time.Second}} {
			if r, err := take("member:5", wrong); r.Allowed || err == nil {
				t.Errorf("limit %+v: %+v", wrong, r)
			}
		}
		if r, err := take("member:5", ratelimit.Unlimited); !r.Allowed || err != nil {
			t.Errorf("Unlimited: %+v, error %v", r, err)
		}
	}
}
