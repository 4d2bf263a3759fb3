package ratelimit_test

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

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
