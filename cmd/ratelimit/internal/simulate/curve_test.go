package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
)

// deniedBy returns how many requests a limit denies, and to how many clients, if p is the only policy.
func deniedBy(t *testing.T, log []logged, p ratelimit.Policy, limit ratelimit.Limit, route string) (requests, clients int64) {
	t.Helper()
	p.Limit, p.LockFor, p.MaxWait, p.Shadow = limit, 0, 0, false
	listed, mounted := []ratelimit.Policy{p}, map[string][]ratelimit.Policy{}
	if route != "" {
		listed, mounted = nil, map[string][]ratelimit.Policy{route: {p}}
	}
	touched := make(map[string]bool)
	for _, v := range replay(t, log, listed, mounted) {
		if !v.Allowed {
			requests++
			touched[v.Key] = true
		}
	}
	return requests, int64(len(touched))
}

func TestCurveAndSpareEqualEachLimitAlone(t *testing.T) {
	for seed := range uint64(testsize.Of(1, 40)) {
		r := rand.New(rand.NewPCG(seed, 181))
		log := madeLog(r, 150, seed%2 == 1)
		listed, mounted := policiesOf(r)
		for i := range listed {
			listed[i].Optional = true // so that no request is turned away because of another policy
		}
		for _, ps := range mounted {
			for i := range ps {
				ps[i].Optional = true
			}
		}
		share := []float64{0.5, 0.9, 0.999}[seed%3]
		s := setupFor(listed, mounted)
		report, err := run(context.Background(), Config{Clients: 100, Spare: share, Extra: []string{"X-Api-Key"}, Logs: []Log{{Reader: strings.NewReader(textOf(log))}}}, s)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range report.Policies {
			if p.Quota != (s.policies[i].Limit.Period() != 0) || !p.Quota && (len(p.Curve) != 16 || len(p.Spare.Limits) != 7) || p.Quota && (len(p.Curve) < 7 || len(p.Spare.Limits) != 1) {
				t.Fatalf("seed %d: %d limits and %d rates of %s", seed, len(p.Curve), len(p.Spare.Limits), p.Limit)
			}
			for _, point := range p.Curve {
				limit, err := ratelimit.ParseLimit(point.Limit)
				if err != nil {
					t.Fatal(err)
				}
				if requests, clients := deniedBy(t, log, s.policies[i], limit, p.On); point.RequestsDenied != requests || point.ClientsDenied != clients {
					t.Fatalf("seed %d, policy %s: %s denies %d requests to %d clients, want %d to %d", seed, p.Name, point.Limit, point.RequestsDenied, point.ClientsDenied, requests, clients)
				}
			}
			for _, spared := range p.Spare.Limits {
				limit, err := ratelimit.ParseLimit(spared.Limit)
				if err != nil {
					t.Fatal(err)
				}
				limit = withCapacity(limit, spared.Burst)
				_, clients := deniedBy(t, log, s.policies[i], limit, p.On)
				if clients != spared.ClientsDenied || clients > p.Spare.Touched {
					t.Fatalf("seed %d, policy %s: %s denies something to %d clients, want %d, at most %d", seed, p.Name, spared.Limit, spared.ClientsDenied, clients, p.Spare.Touched)
				}
				if spared.Burst == 1 {
					continue
				}
				limit = withCapacity(limit, spared.Burst-1)
				if _, clients := deniedBy(t, log, s.policies[i], limit, p.On); clients <= p.Spare.Touched {
					t.Fatalf("seed %d, policy %s: %v, and not %d, would do for %s, with %d clients", seed, p.Name, limit, spared.Burst, spared.Limit, clients)
				}
			}
		}
	}
}

// Whatever the limit is, the curve has limits on both sides of it, in their order.
func TestCurveOfUnusualLimits(t *testing.T) {
	for _, own := range []ratelimit.Limit{
		ratelimit.PerSecond(1), ratelimit.PerMinute(60), ratelimit.PerHour(1), ratelimit.Every(30 * 24 * time.Hour), ratelimit.PerSecond(1_000_000),
		ratelimit.Every(time.Microsecond).WithBurst(100), ratelimit.Every(20 * 365 * 24 * time.Hour), {Rate: 999_983, Per: 7 * time.Second, Burst: 3}, {Rate: 1 << 30, Per: time.Hour},
	} {
		c := newCurve(own)
		found, before := false, 0.0
		for _, r := range c.rows {
			rate := float64(r.limit.Rate) / r.limit.Per.Seconds()
			if rate <= before {
				t.Errorf("%v: %v is not above the limit before", own, r.limit)
			}
			before = rate
			found = found || r.limit == own
			if back, err := ratelimit.ParseLimit(r.limit.String()); err != nil || back != r.limit {
				t.Errorf("%v: %v: %v, %v", own, r.limit, back, err)
			}
			if exact := math.Round(2 * math.Log2(rate/(float64(own.Rate)/own.Per.Seconds()))); math.Abs(rate/(float64(own.Rate)/own.Per.Seconds())/math.Exp2(exact/2)-1) > 0.0101 {
				t.Errorf("%v: %v is more than 1 %% from a step of the curve", own, r.limit)
			}
		}
		if !found {
			t.Errorf("%v is not in its curve", own)
		}
		if len(c.rows) < 9 || len(c.rates) < 4 {
			t.Errorf("%v: %d limits and %d rates", own, len(c.rows), len(c.rates))
		}
	}
	for _, none := range []ratelimit.Limit{{}, ratelimit.Unlimited} {
		if newCurve(none) != nil {
			t.Errorf("%v has a curve", none)
		}
	}
}

func TestCurveOfQuotas(t *testing.T) {
	for _, own := range []ratelimit.Limit{
		ratelimit.Quota(1, ratelimit.Month), ratelimit.Quota(3, ratelimit.Hour).In("Europe/Berlin"), ratelimit.Quota(100_000, ratelimit.Month), ratelimit.Quota(1<<52, ratelimit.Day),
	} {
		c := newCurve(own)
		found, before := false, int64(0)
		for _, r := range c.rows {
			if r.limit.Rate <= before || r.limit.Period() != own.Period() || r.limit.Zone() != own.Zone() {
				t.Errorf("%v: %v behind a quota of %d", own, r.limit, before)
			}
			before, found = r.limit.Rate, found || r.limit == own
		}
		if points := c.points(); !found || len(points) < 7 || points[0].PerSecond != 0 || points[0].Burst != c.rows[0].limit.Rate {
			t.Errorf("%v: %+v", own, points)
		}
	}
}

// A clock that goes back adds nothing to what a client needs, and what passes again counts once.
func TestCurveOfAClockThatGoesBack(t *testing.T) {
	c, of := newCurve(ratelimit.PerSecond(1)), new(alone)
	for _, at := range []int64{100, 50, 60, 100, 103} {
		c.add(of, at*1_000_000, 1, 1)
	}
	own := &c.rates[ownRate]
	if s := of.levels[ownRate]; s.need != 4*own.unit || s.level != 2*own.unit {
		t.Errorf("%d credits are needed and %d are left, of %d for a token: want 4 and 2 tokens", s.need, s.level, own.unit)
	}
}

// There are at most 72 spans: one more second makes them longer.
func TestTheLengthOfSpans(t *testing.T) {
	for last, want := range map[int64]time.Duration{71: time.Second, 72: 5 * time.Second, 359: 5 * time.Second, 360: 10 * time.Second, 86_399: 20 * time.Minute, 86_400: time.Hour, 80 * 86_400: 48 * time.Hour} {
		times := newTimeline()
		for _, at := range []int64{864_000, 864_000 + last} {
			times.count(0, at*1_000_000, at != 864_000)
		}
		spans := times.of(0)
		if n := len(spans); n > 72 || spans[1].From.Sub(spans[0].From) != want || spans[0].Requests != 1 || spans[n-1].Denied != 1 {
			t.Errorf("%d s: %d spans, the first ones %v", last, n, spans[:2])
		}
	}
}

// Waits that overlap count once in the time in which a client had too few tokens.
func TestWaitsThatOverlap(t *testing.T) {
	times := newTally(ratelimit.Policy{Name: "p", Limit: ratelimit.PerSecond(1)}, "", 9)
	for _, o := range []outcome{
		{at: 0, Result: ratelimit.Result{State: store.State{RetryAfter: 10 * time.Second}}}, {at: 4_000_000, Result: ratelimit.Result{State: store.State{RetryAfter: 6 * time.Second}}}, {at: 5_000_000, Result: ratelimit.Result{State: store.State{RetryAfter: 8 * time.Second}}}, {at: 20_000_000, Result: ratelimit.Result{State: store.State{RetryAfter: time.Second}}},
	} {
		times.decided(&o, o.at)
	}
	if of := times.all[0]; of.total != 14_000_000 || of.longest != 10_000_000 || of.denials.count != 4 {
		t.Errorf("%d µs in all, the longest %d, %d denials", of.total, of.longest, of.denials.count)
	}
}
