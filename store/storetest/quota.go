package storetest

import (
	"math/big"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// quotaRules are those of a bucket whose limit is a quota. It is 10:20:30.123456 UTC on Saturday, the 23rd of May 2026.
var quotaRules = []rule{
	{"an hour's quota refills all at once when it ends", renewed(store.Hour, "", 39*minute+restOfMinute)},
	{"an hour's quota refills by the clocks of its time zone", renewed(store.Hour, "Asia/Kolkata", 9*minute+restOfMinute)},
	{"a day's quota refills all at once when it ends", renewed(store.Day, "", 13*hour+39*minute+restOfMinute)},
	{"a day's quota refills at midnight in its time zone", renewed(store.Day, "Europe/Berlin", 11*hour+39*minute+restOfMinute)},
	{"a week's quota refills on Monday", renewed(store.Week, "", day+13*hour+39*minute+restOfMinute)},
	{"a month's quota refills on the first", renewed(store.Month, "", 8*day+13*hour+39*minute+restOfMinute)},
	{"a month's quota refills on the first in its time zone", renewed(store.Month, "America/New_York", 8*day+17*hour+39*minute+restOfMinute)},
	{"a period may be longer or shorter than the one before", func(r *rig) {
		r.nanos.Store(time.Date(2027, 1, 31, 23, 30, 0, 0, time.UTC).UnixNano())
		r.do("berlin", r.quota(2, store.Month, "Europe/Berlin"), allow(2, 0), says(store.State{Allowed: true, ResetAfter: 28*day - hour/2}),
			wait(28*day-hour/2), allow(2, 0), says(store.State{Allowed: true, ResetAfter: 31*day - hour}), // clocks are set forward
			wait(31*day-hour), allow(1, 1), says(store.State{Allowed: true, Remaining: 1, ResetAfter: 30 * day}))
	}},
	{"a changed quota keeps what was used, and leaves no debt for the next period", on(second, 1, quota(1000, store.Day, ""),
		allow(800, 200), quota(5000, store.Day, ""), peek(4200), allow(100, 4100), quota(500, store.Day, ""), deny(1, 0), allow(-300, 0),
		quota(1000, store.Day, ""), peek(400), quota(500, store.Day, ""), wait(day), allow(500, 0))},
	{"a denied charge puts the bucket under its quota, and keeps what was used", on(second, 1, quota(10, store.Day, ""), allow(10, 0),
		quota(5, store.Day, ""), deny(1, 0), quota(12, store.Day, ""), allow(2, 0), deny(1, 0))},
	{"a period that has begun keeps its end, whatever time zone a charge has", on(second, 1, quota(3, store.Day, ""), allow(1, 2),
		quota(3, store.Day, "Asia/Kolkata"), allow(1, 1), says(store.State{Allowed: true, Remaining: 1, ResetAfter: 13*hour + 39*minute + restOfMinute}),
		times(3, quota(3, store.Day, "Pacific/Auckland"), try(1), quota(3, store.Day, ""), try(1), wait(3*hour)), deny(1, 0),
		wait(5*hour), allow(3, 0))},
	{"two time zones in turn grant no more than a quota in each period that begins, and one more", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Cost: 1}
		for _, zones := range [][2]string{{"", "Asia/Kolkata"}, {"Pacific/Kiritimati", "Pacific/Pago_Pago"}, {"Europe/Berlin", "America/Santiago"}} {
			var quotas [2]store.Limit
			begun := 1 // periods of the zone in which more begin
			for i, zone := range zones {
				quotas[i] = r.quota(5, store.Day, zone)
			}
			allowed, days := int64(0), 4
			for c.Key = zones[0] + " and " + zones[1]; begun <= days; {
				for i := range 11 { // at each moment each zone tries to use all that the other has left
					c.Limit = quotas[i%2]
					if ok, _ := r.take(c); ok {
						allowed++
					}
				}
				until := periodEnd(quotas[0].Period, r.now())
				if r.wait(hour - 7*micro); r.now() >= until {
					begun++
				}
			}
			if most := 5 * int64(days+1); allowed > most || allowed < 5*int64(days-2) {
				r.Errorf("%v: %d of a quota of 5 in each of %d days, want at most %d", zones, allowed, days, most)
			}
		}
	}},
	{"another kind of period may make it shorter, and never longer", on(second, 1, quota(9, store.Week, ""), allow(3, 6),
		quota(9, store.Month, ""), allow(1, 5), quota(9, store.Hour, ""), allow(1, 4), says(store.State{Allowed: true, Remaining: 4, ResetAfter: 39*minute + restOfMinute}),
		quota(9, store.Month, ""), allow(1, 3), wait(40*minute), allow(1, 8), says(store.State{Allowed: true, Remaining: 8, ResetAfter: 8*day + 12*hour + 59*minute + restOfMinute}))},
	{"a bucket that goes from a rate to a quota, or back, is full", on(hour, 5, allow(5, 0), quota(3, store.Month, ""), allow(1, 2), peek(2),
		limit(1, hour, 5), allow(4, 1), deny(2, 1), quota(3, store.Month, ""), peek(3), allow(3, 0), limit(1, hour, 5), allow(5, 0), deny(1, 0))},
	{"what was charged before a bucket goes from a rate to a quota, or back, does not change it", on(hour, 5, allow(5, 0), quota(3, store.Month, ""), allow(2, 1),
		limit(1, hour, 5), allow(-1, 5), owe(1, 5), settle(1, 5), quota(3, store.Month, ""), peek(1), deny(2, 1),
		limit(1, hour, 5), allow(4, 1), quota(3, store.Month, ""), allow(-2, 3), owe(1, 3), settle(1, 3), limit(1, hour, 5), peek(1))},
	{"a refund for the period before gives nothing, and a debt of it ends", on(second, 1, quota(5, store.Hour, ""), allow(4, 1), allow(-2, 3), allow(-9, 5),
		owe(12, 0), says(store.State{Allowed: true, Wait: 39*minute + restOfMinute, ResetAfter: 39*minute + restOfMinute}),
		allow(-3, 0), deny(1, 0), wait(40*minute), allow(-3, 5), owe(6, 0), deny(1, 0), settle(3, 0), wait(hour), settle(3, 2), settle(3, 0), deny(1, 0))},
	{"nobody reserves tokens of the next period", on(second, 1, quota(2, store.Hour, ""), maxWait(24*hour), allow(2, 0), deny(1, 0),
		wait(hour), allow(2, 0))},
	{"a cost above a quota is never allowed", on(second, 1, quota(2, store.Hour, ""), deny(3, 2),
		says(store.State{Remaining: 2, RetryAfter: store.Never, ResetAfter: 39*minute + restOfMinute}))},
	{"time that runs backwards grants nothing", on(second, 1, quota(2, store.Day, ""), allow(2, 0), shift(-24*hour), deny(1, 0),
		shift(24*hour), deny(1, 0), wait(24*hour), allow(2, 0))},
	{"a reset makes a quota full", on(second, 1, quota(2, store.Month, ""), allow(2, 0), reset, allow(2, 0), deny(1, 0))},
	{"a charge that empties a quota locks it, also beyond its period", on(second, 1, quota(3, store.Hour, ""), locking(2*hour), allow(3, 0), blocked(2*hour, true),
		wait(hour), deny(1, 0), wait(hour), allow(3, 0), blocked(2*hour, true), plain(-1, 1), blocked(0, false),
		locking(0), allow(1, 0), locking(hour), deny(1, 0), blocked(0, false))},
	{"a quota is charged together with a rate, or neither is", func(r *rig) {
		rate := store.Charge{Policy: "rate", Key: "k", Limit: r.limit(1, minute, 3), Cost: 1}
		month := store.Charge{Policy: "month", Key: "k", Limit: r.quota(4, store.Month, ""), Cost: 1}
		for _, want := range []bool{true, true, true, false, false} {
			if ok, states := r.take(rate, month); ok != want {
				r.Fatalf("ok %t, %+v", ok, states)
			}
		}
		r.wait(hour)
		for _, want := range []bool{true, false, false} {
			if ok, states := r.take(month, rate); ok != want {
				r.Fatalf("ok %t, %+v", ok, states)
			}
		}
		month.Shadow = true
		if ok, states := r.take(month, rate); !ok || states[0].Allowed {
			r.Fatalf("a shadow: ok %t, %+v", ok, states)
		}
	}},
}

// blockedQuotaRules are those of blocks of such buckets.
var blockedQuotaRules = []rule{
	{"a block of a quota ends at its time, and the quota goes on below", on(second, 1, quota(3, store.Hour, ""), allow(2, 1), block(minute), deny(1, 0),
		wait(minute), peek(1), block(2*hour), deny(1, 0), quota(5, store.Hour, ""), deny(1, 0), wait(2*hour), allow(5, 0), block(hour), limit(1, hour, 5), wait(hour), allow(5, 0))},
	{"a quota that was never charged is full after a block", on(second, 1, quota(3, store.Day, ""), block(minute), deny(1, 0), wait(minute), allow(3, 0))},
}

const restOfMinute = 29*second + 876_544*micro

// renewed returns a test of a quota whose period ends in that time.
func renewed(unit store.PeriodUnit, zone string, ends time.Duration) func(*rig) {
	return on(second, 1, quota(5, unit, zone),
		peek(5), says(store.State{Allowed: true, Remaining: 5, ResetAfter: ends}),
		allow(2, 3), allow(3, 0), says(store.State{Allowed: true, ResetAfter: ends}),
		deny(1, 0), says(store.State{RetryAfter: ends, ResetAfter: ends}),
		wait(ends-micro), deny(1, 0), says(store.State{RetryAfter: micro, ResetAfter: micro}),
		wait(micro), allow(5, 0), deny(1, 0))
}

// quota changes the limit of the next charges to n tokens in each period.
func quota(n int64, unit store.PeriodUnit, zone string) step {
	return func(b *bucket) { b.Limit = b.rig.quota(n, unit, zone) }
}

// quota compiles a quota that must fit.
func (r *rig) quota(n int64, unit store.PeriodUnit, zone string) store.Limit {
	p, err := store.NewPeriod(unit, zone)
	if err != nil {
		r.Fatalf("this host lacks the time zones: import time/tzdata in the test: %v", err)
	}
	l, err := store.NewQuota(n, p)
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// underQuota returns e at now, if its limit or that of a charge is a quota.
func (e exact) underQuota(l store.Limit, now int64) exact {
	tokens, ends := rat(burst(l)), int64(0)
	if l.IsQuota() {
		ends = periodEnd(l.Period, now)
	}
	switch {
	case !l.IsQuota() || !e.limit.IsQuota():
		if !e.limit.IsQuota() {
			e.hold = max(e.hold, e.last+after(e.limit, rat(burst(e.limit)), e.tokens).Microseconds())
		}
		e.hold = max(e.hold, e.ends)
		e.last = now
	case now < e.ends:
		tokens.Sub(tokens, rat(burst(e.limit)))
		tokens = clamp(tokens.Add(tokens, e.tokens), deepestDebt(l), rat(burst(l)))
		if e.limit.Period.Unit == l.Period.Unit || e.ends < ends {
			ends = e.ends
		}
	}
	e.limit, e.tokens, e.ends = l, tokens, ends
	return e
}

// state returns the state of c's bucket e, whose limit is a quota.
func (e exact) state(c store.Charge, now int64, charged, fits bool) store.State {
	rest := time.Duration(e.ends-now) * micro
	s := store.State{Allowed: fits, ResetAfter: rest}
	if e.tokens.Sign() > 0 {
		s.Remaining = floor(e.tokens).Int64()
	}
	switch {
	case charged && c.Cost > 0 && !c.Settles && e.tokens.Sign() < 0:
		s.Wait = rest
	case !fits && c.Cost > burst(c.Limit):
		s.RetryAfter = store.Never
	case !fits:
		if s.RetryAfter = rest; e.tokens.Cmp(new(big.Rat).SetInt64(c.Cost)) >= 0 {
			s.RetryAfter = 0 // only a block denies it
		}
	}
	return s
}

// ends has the ends of periods.
var ends sync.Map

// A written is a period as people write it.
type written struct {
	*store.Period
	text string
}

// periodEnd returns when a period ends. It follows the text of package store and not the code of internal/bucket: it looks
// at each quarter of an hour whether people write another period then.
func periodEnd(p *store.Period, now int64) int64 {
	text := func(t time.Time) string {
		switch t = t.In(p.Location()); p.Unit {
		case store.Hour:
			return t.Format("2006-01-02 15 -0700")
		case store.Day:
			return t.Format(time.DateOnly)
		case store.Week:
			return t.AddDate(0, 0, -(int(t.Weekday())+6)%7).Format(time.DateOnly)
		default:
			return t.Format("2006-01")
		}
	}
	t := time.UnixMicro(now)
	this := written{p, text(t)}
	if end, known := ends.Load(this); known {
		return end.(int64)
	}
	for t = t.Truncate(15 * minute); text(t) == this.text; {
		t = t.Add(15 * minute)
	}
	ends.Store(this, t.UnixMicro())
	return t.UnixMicro()
}
