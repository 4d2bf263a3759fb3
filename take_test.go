package ratelimit_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
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

func TestDecideAnswersNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		own := perIP("own", ratelimit.PerHour(1))
		l := newLimiter(t, ratelimit.Config{Store: s, Policies: []ratelimit.Policy{own}})
		r := httptest.NewRequest("GET", "/", nil)
		for i, want := range []bool{true, false} {
			d, err := l.Decide(r)
			if err != nil || d.Allowed != want || len(d.Results) != 1 || d.Results[0].Key != "ip:192.0.2.1" {
				t.Errorf("decision %d by Config.Policies: %+v, %v", i, d, err)
			}
		}
		d, err := l.Decide(r, perIP("a", ratelimit.PerHour(2)), perIP("b", ratelimit.PerHour(3)))
		if err != nil || !d.Allowed || len(d.Results) != 2 || d.Results[1].Remaining != 2 || d.Results[1].Limit != ratelimit.PerHour(3) {
			t.Errorf("decision by others: %+v, %v", d, err)
		}
		if d, err := l.Decide(r, ratelimit.Policy{Name: "a", Key: noKey, Limit: ratelimit.PerHour(2)}); d.Allowed || !errors.Is(err, ratelimit.ErrNoKey) {
			t.Errorf("without a key: %+v, %v", d, err)
		}
		if d, err := l.Decide(r, ratelimit.Policy{Name: "a"}); d.Allowed || err == nil || !strings.Contains(err.Error(), "Key") || !strings.Contains(err.Error(), "Limit") {
			t.Errorf("of a malformed policy: %+v, %v", d, err)
		}
	})
}

// tiers is a policy whose only limit is that of a LimitFunc.
var tiers = ratelimit.Policy{
	Name:      "tiers",
	Key:       ratelimit.Static("k"),
	LimitFunc: func(*http.Request) ratelimit.Limit { return gold },
}

var gold = ratelimit.PerHour(60).WithBurst(600)

func TestResetFillsTheBucketOfAnyTier(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		ctx := t.Context()
		for name, c := range map[string]struct {
			limit     ratelimit.Limit
			remaining int64
		}{
			"a lower limit": {ratelimit.PerSecond(1).WithBurst(10), 10},
			"no limit":      {ratelimit.Limit{}, 0},
			"unlimited":     {ratelimit.Unlimited, math.MaxInt64},
		} {
			member := tiers
			member.Limit, member.LimitFunc = gold, nil
			if r, err := l.Take(ctx, member, "k", 600); err != nil || !r.Allowed {
				t.Fatal(r, err)
			}
			by := tiers
			by.Limit = c.limit
			r, err := l.Reset(ctx, by, "k")
			if err != nil || !r.Allowed || r.Limit != c.limit || r.Remaining != c.remaining || r.ResetAfter != 0 {
				t.Errorf("by %s: %+v, %v", name, r, err)
			}
			if r, err := l.Peek(ctx, member, "k"); err != nil || r.Used || r.Remaining != 600 {
				t.Errorf("by %s: %+v, %v, want 600 left", name, r, err)
			}
		}
	})
}

func TestPeekReportsByTheLimitOfTheBucket(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		ctx := t.Context()
		named := ratelimit.Policy{Name: "tiers"}
		want := func(p ratelimit.Policy, want ratelimit.Bucket) {
			t.Helper()
			want.Policy, want.Key, want.Allowed = "tiers", "static:k", true
			if r, err := l.Peek(ctx, p, "static:k"); err != nil || r != want {
				t.Errorf("%+v, %v\nwant %+v", r, err, want)
			}
		}
		want(named, ratelimit.Bucket{})
		want(tiers, ratelimit.Bucket{})

		if d, err := l.Decide(httptest.NewRequest("GET", "/", nil), tiers); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		perMinute := ratelimit.PerMinute(1).WithBurst(600)
		used := ratelimit.Bucket{Used: true, Result: ratelimit.Result{Limit: perMinute, State: store.State{Remaining: 599, ResetAfter: time.Minute}}}
		want(named, used)
		want(tiers, used)
		given := named
		given.Limit = gold
		used.Limit = gold
		want(given, used)
		given.Limit = ratelimit.PerHour(10)
		want(given, ratelimit.Bucket{Used: true, Result: ratelimit.Result{Limit: given.Limit, State: store.State{Remaining: 10}}})

		c.Advance(30 * time.Second)
		used.Limit, used.ResetAfter = perMinute, 30*time.Second
		want(named, used)
		c.Advance(30 * time.Second)
		want(named, ratelimit.Bucket{})
	})
}

func TestPeekAsALimitThatACallerWouldWrite(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	for i, c := range []struct{ limit, want ratelimit.Limit }{
		{ratelimit.PerSecond(100), ratelimit.PerSecond(100)},
		{ratelimit.PerMinute(60), ratelimit.PerMinute(60)},
		{ratelimit.PerMinute(60).WithBurst(10), ratelimit.PerSecond(1).WithBurst(10)},
		{ratelimit.PerMinute(90).WithBurst(7), ratelimit.PerMinute(90).WithBurst(7)},
		{ratelimit.PerHour(5).WithBurst(9), ratelimit.PerHour(5).WithBurst(9)},
		{ratelimit.PerDay(7), ratelimit.PerDay(7)},
		{ratelimit.Every(7 * 24 * time.Hour), ratelimit.Every(7 * 24 * time.Hour).WithBurst(1)},
		{ratelimit.Limit{Rate: 1_000_000_000, Per: time.Second, Burst: 1_000_000}, ratelimit.PerSecond(1_000_000_000).WithBurst(1_000_000)},
	} {
		p := ratelimit.Policy{Name: "p", Limit: c.limit}
		key := string(rune('a' + i))
		if _, err := l.Take(t.Context(), p, key, 1); err != nil {
			t.Fatal(err)
		}
		p.Limit = ratelimit.Limit{}
		if r, err := l.Peek(t.Context(), p, key); err == nil && r.Used && r.Limit != c.want {
			t.Errorf("%v: %v, want %v", c.limit, r.Limit, c.want)
		} else if err != nil {
			t.Error(err)
		}
	}
}

func TestPeekOfAStoreThatIsNoInspector(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: bare{Store: s}, Logger: slog.New(slog.DiscardHandler)})
		p := ratelimit.Policy{Name: "p", Limit: ratelimit.PerHour(10)}
		if r, err := l.Peek(t.Context(), p, "k"); err != nil || r.Used || r.Remaining != 10 {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := l.Take(t.Context(), p, "k", 1); err != nil {
			t.Fatal(err)
		}
		if r, err := l.Peek(t.Context(), p, "k"); err != nil || !r.Used || r.Remaining != 9 {
			t.Errorf("%+v, %v", r, err)
		}
		p.Limit = ratelimit.Limit{}
		if _, err := l.Peek(t.Context(), p, "k"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Limit") {
			t.Errorf("%v, want ErrUnsupported", err)
		}
		if r, err := l.Reset(t.Context(), p, "k"); err != nil || !r.Allowed {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// peeked is what other calls than Peek report of a bucket.
func peeked(b ratelimit.Bucket, err error) (ratelimit.Result, error) { return b.Result, err }
