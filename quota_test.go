package ratelimit_test

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

// underQuota runs a test in a bubble, whose clock begins with the year 2000 in UTC, on a limiter in memory.
func underQuota(t *testing.T, test func(t *testing.T, l *ratelimit.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, ratelimit.Config{Store: ratetest.NewStore(), Headers: headers.Join(ratelimit.XRateLimit, headers.IETF)})
		defer l.Close()
		test(t, l)
	})
}

// costing returns a policy under which a request costs what its query says.
func costing(name string, limit ratelimit.Limit) ratelimit.Policy {
	p := perIP(name, limit)
	p.Cost = func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.URL.RawQuery, 10, 64)
		return n
	}
	return p
}

func wantRemaining(t *testing.T, l *ratelimit.Limiter, p ratelimit.Policy, want int64) {
	t.Helper()
	if got := remaining(t, l, p); got != want {
		t.Errorf("%d are left of %v, want %d", got, p.Limit, want)
	}
}

// A month ends in Berlin an hour before it does in UTC.
func TestQuotaIsRenewedAtTheBoundary(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		h := l.Limit(perIP("plan", ratelimit.Quota(2, ratelimit.Month).In("Europe/Berlin")))(okHandler)
		end := time.Date(2000, 1, 31, 23, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(end) - time.Second/2)
		wantStatuses(t, h, []int{200, 200})
		w := get(h)
		reset := strconv.FormatInt(end.Unix(), 10)
		for name, want := range map[string]string{
			"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": reset, "Retry-After": "1",
			"Ratelimit-Policy": `"plan";q=2;w=2678400`, "Ratelimit": `"plan";r=0;t=1`,
		} {
			if got := w.Header().Get(name); w.Code != 429 || got != want {
				t.Errorf("%d, %s: %q, want %q", w.Code, name, got, want)
			}
		}
		time.Sleep(time.Second/2 - time.Microsecond)
		wantStatuses(t, h, []int{429})
		time.Sleep(time.Microsecond)
		w = get(h)
		if got := w.Header().Get("RateLimit-Policy") + " " + w.Header().Get("RateLimit"); w.Code != 200 || got != `"plan";q=2;w=2505600 "plan";r=1;t=2505600` {
			t.Errorf("%d %s", w.Code, got)
		}
		wantStatuses(t, h, []int{200, 429})
	})
}

func TestQuotaOfCosts(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		p := costing("plan", ratelimit.Quota(5, ratelimit.Hour))
		h := l.Limit(p)(okHandler)
		wantStatuses(t, h, []int{200, 429}, query("3"))
		wantStatuses(t, h, []int{200, 429}, query("2"))
		wantStatuses(t, h, []int{200}, query("0"))
		if w := get(h, query("6")); w.Code != 429 || w.Header().Get("Retry-After") != "" {
			t.Errorf("above the quota: %d %v", w.Code, w.Header())
		}
		time.Sleep(time.Hour)
		wantStatuses(t, h, []int{200, 429}, query("5"))
	})
}

// A request is denied by the rate or by the quota, and then uses neither. It does not wait for a period that begins too late.
func TestQuotaBesideARate(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		quota, rate := perIP("plan", ratelimit.Quota(4, ratelimit.Day)), perIP("rate", ratelimit.PerMinute(3))
		quota.MaxWait = time.Hour
		h := l.Limit(rate, quota)(okHandler)
		begin := time.Now()
		wantStatuses(t, h, []int{200, 200, 200, 429, 429})
		wantRemaining(t, l, quota, 1)
		time.Sleep(time.Minute)
		wantStatuses(t, h, []int{200, 429, 429})
		wantRemaining(t, l, rate, 2)
		if w := get(h); time.Since(begin) != time.Minute || w.Header().Get("Retry-After") != strconv.Itoa(24*60*60-60) {
			t.Errorf("after %v: Retry-After %q", time.Since(begin), w.Header().Get("Retry-After"))
		}
	})
}

// Costs that are known later go to the period that it is then: a debt is charged to it, and it gets no refund of the
// period before.
func TestSettleAcrossTheBoundaryOfAQuota(t *testing.T) {
	for name, tt := range map[string]struct {
		cost, final int64
		lock        time.Duration
		within      bool
		want        int64
	}{
		"a refund within the period":           {4, 1, 0, true, 9},
		"a refund after it":                    {4, 1, 0, false, 7},
		"a charge after it":                    {1, 4, 0, false, 4},
		"a refund that may end a lock":         {4, 1, 3 * time.Hour, false, 10},
		"a cost above the quota, as a debt":    {1, 21, 0, false, 0},
		"the same cost, so nothing to be done": {4, 4, 0, false, 7},
	} {
		underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
			other := costing("plan", ratelimit.Quota(10, ratelimit.Hour))
			slow := settled("plan", other.Limit, costs(tt.final))
			slow.Cost, slow.LockFor = func(*http.Request) int64 { return tt.cost }, tt.lock
			h := l.Limit(slow)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if !tt.within {
					time.Sleep(time.Hour)
					wantStatuses(t, l.Limit(other)(okHandler), []int{200}, query("3"))
				}
			}))
			time.Sleep(time.Minute)
			get(h)
			if wantRemaining(t, l, other, tt.want); t.Failed() {
				t.Fatal(name)
			}
			time.Sleep(time.Hour)
			wantRemaining(t, l, other, 10)
		})
	}
}

func TestLockOfAQuotaGoesOnBeyondIt(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		p := perIP("login", ratelimit.Quota(2, ratelimit.Hour))
		p.LockFor = 90 * time.Minute
		h := l.Limit(p)(okHandler)
		time.Sleep(30 * time.Minute)
		wantStatuses(t, h, []int{200, 200, 429})
		time.Sleep(90*time.Minute - time.Microsecond)
		wantStatuses(t, h, []int{429})
		time.Sleep(time.Microsecond)
		wantStatuses(t, h, []int{200, 200, 429})
	})
}

func TestShadowAndHiddenQuotas(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		shadow, hidden := perIP("shadow", ratelimit.Quota(1, ratelimit.Day)), perIP("hidden", ratelimit.Quota(2, ratelimit.Hour))
		shadow.Shadow, hidden.Hidden = true, true
		var last *ratelimit.Decision
		h := l.Limit(shadow, hidden)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { last, _ = ratelimit.FromContext(r.Context()) }))
		wantStatuses(t, h, []int{200, 200})
		if r := last.Results[0]; r.Allowed || r.RetryAfter != 24*time.Hour {
			t.Errorf("the shadow is %+v", r)
		}
		w := get(h)
		if w.Code != 429 || w.Header().Get("Retry-After") != "3600" || w.Header().Get("RateLimit") != "" || w.Header().Get("X-RateLimit-Limit") != "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
}

func TestWaitForAHiddenQuotaIsNotShown(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		for name, hidden := range map[string]bool{"shown": false, "hidden": true} {
			p, other := perIP(name, ratelimit.Quota(1, ratelimit.Hour)), perIP("other", ratelimit.PerHour(10))
			p.MaxWait, p.Hidden = time.Hour, hidden
			h := l.Limit(p, other)(okHandler)
			get(h)
			if w := get(h); w.Code != 200 || (w.Header().Get("X-RateLimit-Waited") == "") != hidden {
				t.Errorf("%s: %d %v", name, w.Code, w.Header())
			}
		}
	})
}

// Without a store, a quota lets requests through like any limit, unless it fails closed.
func TestQuotaThatFailsClosed(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Store: failing(func() error { return errors.New("no route") }), Logger: slog.New(slog.DiscardHandler)})
	p := perIP("plan", ratelimit.Quota(1, ratelimit.Month))
	wantStatuses(t, l.Limit(p)(okHandler), []int{200})
	p.FailClosed = true
	wantStatuses(t, l.Limit(p)(okHandler), []int{503})
}

// A tier that changes within a period keeps what was used, and only a new period refills it.
func TestTiersOfQuotas(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		tier := ratelimit.Quota(1000, ratelimit.Month)
		p := costing("plan", tier)
		p.LimitFunc = func(*http.Request) ratelimit.Limit { return tier }
		h := l.Limit(p)(okHandler)
		for _, step := range []struct {
			tier      ratelimit.Limit
			cost      string
			status    int
			remaining string
		}{
			{tier, "800", 200, "200"},
			{ratelimit.Quota(5000, ratelimit.Month), "0", 200, "4200"},
			{ratelimit.Quota(500, ratelimit.Month), "1", 429, "0"},
			{ratelimit.Quota(0, ratelimit.Month), "1", 429, "0"},
			{ratelimit.Quota(900, ratelimit.Month).In("Europe/Berlin"), "100", 200, "0"},
			{ratelimit.Quota(900, ratelimit.Day), "1", 429, "0"}, // its period is shorter
			{ratelimit.Unlimited, "5000", 200, ""},
		} {
			tier = step.tier
			if w := get(h, query(step.cost)); w.Code != step.status || w.Header().Get("X-RateLimit-Remaining") != step.remaining {
				t.Errorf("%v: %d, %q left, want %d, %q", tier, w.Code, w.Header().Get("X-RateLimit-Remaining"), step.status, step.remaining)
			}
		}
		time.Sleep(24 * time.Hour)
		tier = ratelimit.Quota(900, ratelimit.Day)
		wantStatuses(t, h, []int{200, 429}, query("900"))
	})
}

func TestPeekOfAQuota(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		for _, limit := range []ratelimit.Limit{ratelimit.Quota(100_000, ratelimit.Month).In("Europe/Berlin"), ratelimit.Quota(1<<52, ratelimit.Hour)} {
			p := perIP(limit.Period().String(), limit)
			wantStatuses(t, l.Limit(p)(okHandler), []int{200, 200, 200})
			b, err := l.Peek(t.Context(), ratelimit.Policy{Name: p.Name}, address)
			if err != nil || b.Limit != limit || b.Remaining != limit.Rate-3 || b.Until(b.Remaining) != 0 || b.Until(limit.Rate) != b.ResetAfter || !b.Used {
				t.Errorf("%+v, %v", b, err)
			}
			if _, err := l.Block(t.Context(), p, address, 2*time.Hour, "test"); err != nil {
				t.Fatal(err)
			}
			if b, err := l.Peek(t.Context(), ratelimit.Policy{Name: p.Name}, address); err != nil || b.Limit != limit || b.Remaining != 0 || b.RetryAfter != 2*time.Hour {
				t.Errorf("blocked: %+v, %v", b, err)
			}
			if _, err := l.Reset(t.Context(), p, address); err != nil {
				t.Fatal(err)
			}
			wantRemaining(t, l, p, limit.Rate)
		}
	})
}

// A request that would wait for the next period is explained as it is decided then.
func TestExplainOfARequestThatWaitsForAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota, rate := perIP("plan", ratelimit.Quota(2, ratelimit.Hour)), perIP("rate", ratelimit.Every(time.Minute))
		quota.MaxWait, rate.MaxWait = 20*time.Minute, 21*time.Minute
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{quota, rate}})
		defer l.Close()
		h := l.Handler(okHandler)
		time.Sleep(30 * time.Minute)
		wantStatuses(t, h, []int{200, 200, 429})
		if e := l.Explain(requestWith()); e.Status != 429 {
			t.Errorf("half an hour before: %v", e)
		}
		time.Sleep(19 * time.Minute)
		e := l.Explain(requestWith())
		begin, w := time.Now(), get(h)
		took := time.Since(begin)
		explained := e.Limiters[0].Policies[0]
		if w.Code != 200 || e.Status != 0 || took != 10*time.Minute || explained.Why != "the request waits 10m0s for the next period" {
			t.Errorf("%d after %v, explained as %v", w.Code, took, e)
		}
		for name := range w.Header() {
			if got, want := e.Header.Get(name), w.Header().Get(name); got != want && name != "Content-Type" {
				t.Errorf("%s is explained as %q and answered as %q", name, got, want)
			}
		}
	})
}

func TestPeekOfAQuotaOnEachStore(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		p := perIP("plan", ratelimit.Quota(10, ratelimit.Month).In("Europe/Berlin"))
		l, other := newLimiter(t, ratelimit.Config{Store: s}), newLimiter(t, ratelimit.Config{Store: bare{Store: s}}) // that is no Inspector
		for used := range int64(3) {
			for name, l := range map[string]*ratelimit.Limiter{"inspected": l, "not inspected": other} {
				if b, err := l.Peek(t.Context(), p, address); err != nil || b.Used != (used > 0) || b.Remaining != 10-used || b.ResetAfter <= 0 || b.ResetAfter > 32*24*time.Hour {
					t.Errorf("%s: %+v, %v", name, b, err)
				}
			}
			if b, err := l.Peek(t.Context(), ratelimit.Policy{Name: "plan"}, address); err != nil || b.Used != (used > 0) || b.Used && b.Limit != p.Limit {
				t.Errorf("without a limit: %+v, %v", b, err)
			}
			if r, err := l.Take(t.Context(), p, address, 1); err != nil || !r.Allowed {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		c.Advance(32 * 24 * time.Hour)
		if b, err := l.Peek(t.Context(), p, address); err != nil || b.Used || b.Remaining != 10 {
			t.Errorf("a month later: %+v, %v", b, err)
		}
	})
}

// The explanation of a request says what Handler then does, on both sides of a boundary.
func TestExplainOfAQuota(t *testing.T) {
	underQuota(t, func(t *testing.T, l *ratelimit.Limiter) {
		p := costing("plan", ratelimit.Quota(3, ratelimit.Day).In("America/New_York"))
		h := l.Limit(p)(okHandler)
		for range 40 {
			for _, cost := range []string{"2", "1", "4", "1"} {
				r := requestWith()
				r.URL.RawQuery = cost
				e := l.Explain(r, p)
				w := get(h, query(cost))
				explained := e.Limiters[len(e.Limiters)-1].Policies[0]
				if got := max(200, e.Status); got != w.Code || explained.Limit != "3 per day America/New_York" {
					t.Errorf("%v, cost %s: explained as %d %+v, answered %d", time.Now(), cost, e.Status, explained, w.Code)
				}
				for _, name := range []string{"X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After", "Ratelimit", "Ratelimit-Policy"} {
					if got, want := e.Header.Get(name), w.Header().Get(name); got != want {
						t.Errorf("%v, cost %s: %s is explained as %q and answered as %q", time.Now(), cost, name, got, want)
					}
				}
				if cost == "4" && explained.Why != "the cost is negative or above the quota of 3" {
					t.Error(explained.Why)
				}
			}
			time.Sleep(91 * time.Minute)
		}
	})
}
