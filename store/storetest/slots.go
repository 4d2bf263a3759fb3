package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// slotRules are those of a bucket whose limit is a concurrency limit. A Store may keep slots for a lease. So the clock hardly
// moves while they are held, unless the next charge is one that takes a slot.
var slotRules = []rule{
	{"a slot is held until it is released, and no more than n are held", onSlots(3, peek(3), says(store.State{Allowed: true, Remaining: 3}),
		allow(1, 2), says(store.State{Allowed: true, Remaining: 2, ResetAfter: second}), allow(1, 1), allow(1, 0),
		times(5, deny(1, 0), says(store.State{RetryAfter: second, ResetAfter: second})), shift(hour), deny(1, 0),
		release(false), allow(1, 0), deny(1, 0), times(3, release(false)), peek(3), says(store.State{Allowed: true, Remaining: 3}))},
	{"a release of a slot that is not held is allowed, frees nothing, and says that the slot was lost", onSlots(2, release(true), peek(2),
		allow(1, 1), release(false), times(3, release(true)), allow(1, 1), allow(1, 0), deny(1, 0))},
	{"a changed n leaves the slots that are held as they are", onSlots(3, times(3, try(1)), slots(1), deny(1, 0),
		says(store.State{RetryAfter: second, ResetAfter: second}), times(2, release(false)), peek(0), deny(1, 0), release(false), allow(1, 0),
		slots(5), peek(4), allow(1, 3), slots(2), deny(1, 0), release(false), allow(1, 0))},
	{"a shadow takes a slot if one is free, and denies nothing", onSlots(1, shadow(true), allow(1, 0), deny(1, 0),
		shadow(false), deny(1, 0), release(false), release(true), allow(1, 0))},
	// For a moment after the last denial, a look may show a slot as kept for the caller that waits.
	{"nobody reserves a slot", onSlots(1, maxWait(hour), waited(second), allow(1, 0), times(3, deny(1, 0), says(store.State{RetryAfter: second, ResetAfter: second})),
		shift(second), release(false), allow(1, 0), deny(1, 0))},
	{"a slot is taken together with tokens, or neither is", func(r *rig) {
		charges := []store.Charge{
			{Policy: "slots", Key: "k", Limit: r.slots(2), Cost: 1},
			{Policy: "rate", Key: "k", Limit: r.limit(1, hour, 4), Cost: 1},
			{Policy: "month", Key: "k", Limit: r.quota(5, store.Month, ""), Cost: 1},
		}
		b := &bucket{rig: r, Charge: charges[0]}
		left := func(free, tokens, month int64) {
			r.Helper()
			for i, n := range []int64{free, tokens, month} {
				peek(n)(&bucket{rig: r, Charge: charges[i]})
			}
		}
		for _, want := range []bool{true, true, false, false} { // for want of a slot
			if ok, states := r.take(charges...); ok != want {
				r.Fatalf("ok %t, %+v", ok, states)
			}
		}
		left(0, 2, 3)
		release(false)(b)
		charges[1].Cost = 3
		if ok, states := r.take(charges...); ok { // for want of tokens
			r.Fatalf("%+v", states)
		}
		left(1, 2, 3)
		charges[1].Cost = 1
		r.take(charges...)
		left(0, 1, 2)
		shadow := slices.Clone(charges)
		shadow[0].Shadow = true
		if ok, states := r.take(shadow...); !ok || states[0].Allowed {
			r.Fatalf("a shadow: ok %t, %+v", ok, states)
		}
		left(0, 0, 1)
		for i := range charges {
			charges[i].Cost = -1
		}
		r.take(charges...) // of a request that was given up
		left(1, 1, 2)
	}},
	{"a reset leaves the slots that are held as they are", onSlots(2, allow(1, 1), plain(store.Reset, 1), peek(1), allow(1, 0), deny(1, 0),
		times(2, release(false)), reset, peek(2))},
	{"a bucket that goes from slots to a rate or a quota, or back, is full, and late releases leave it as it is", func(r *rig) {
		for key, other := range map[string]step{"rate": limit(1, hour, 5), "quota": quota(5, store.Month, "")} {
			r.do(key, r.slots(2), allow(1, 1), other, allow(4, 1), slots(2), func(b *bucket) {
				c := b.Charge
				c.Cost = -1 // a Store with leases need not know yet that it is lost
				if ok, states := r.call(c); !ok || !states[0].Allowed {
					r.Fatalf("a late release: ok %t, %+v", ok, states)
				}
			}, other, peek(1), slots(2), peek(2), allow(1, 1), allow(1, 0), deny(1, 0), times(2, release(false)), other, allow(5, 0))
		}
	}},
	{"a charge for slots with Owed, Settles or Lock is invalid", onSlots(2, func(b *bucket) {
		for name, options := range map[string]store.Charge{"Owed": {Owed: true}, "Settles": {Settles: true}, "Lock": {Lock: second}} {
			options.Policy, options.Key, options.Limit, options.Cost = b.Policy, b.Key, b.Limit, 1
			if ok, err := b.store.Take(context.Background(), []store.Charge{options}, make([]store.State, 1)); ok || !errors.Is(err, store.ErrInvalidCall) {
				b.Errorf("%s: ok %t, error %v, want false and ErrInvalidCall", name, ok, err)
			}
		}
	}, peek(2))},
	{"of many at once no more than n hold a slot, and in the end all are free", func(r *rig) {
		const n, goroutines = 3, 12
		take := store.Charge{Policy: "p", Key: "k", Limit: r.slots(n), Cost: 1}
		free := take
		free.Cost = -1
		var held, taken atomic.Int64
		r.together(goroutines, func(int) {
			for tries := 0; tries < 60; tries++ {
				if ok, _ := r.call(take); !ok {
					continue
				}
				taken.Add(1)
				if now := held.Add(1); now > n {
					r.Errorf("%d hold a slot, want at most %d", now, n)
				}
				time.Sleep(50 * micro)
				held.Add(-1)
				if ok, states := r.call(free); !ok || states[0].Lost {
					r.Errorf("a release: ok %t, %+v", ok, states)
				}
			}
		})
		if taken.Load() < goroutines {
			r.Errorf("only %d slots were taken", taken.Load())
		}
		r.awaitRelease(take)
		all(allow(1, 2), allow(1, 1), allow(1, 0), deny(1, 0))(&bucket{rig: r, Charge: take})
	}},
	{"a random sequence of charges for slots is answered as by exact arithmetic", func(r *rig) {
		random := rand.New(rand.NewPCG(31, 0))
		limits := []store.Limit{r.slots(1), r.slots(2), r.slots(3), r.slots(5)}
		tokens := store.Charge{Policy: "rate", Limit: r.limit(1, hour, 60), Cost: 1}
		for range 400 {
			tokens.Key = fmt.Sprint("k", random.IntN(2))
			releases := random.IntN(5) < 2
			var charges []store.Charge
			for _, p := range random.Perm(3)[:1+random.IntN(3)] {
				c := store.Charge{Policy: fmt.Sprint("p", p), Key: tokens.Key, Limit: limits[p], Cost: 1, Shadow: random.IntN(5) == 0}
				if random.IntN(10) == 0 {
					c.Limit = limits[random.IntN(len(limits))]
				}
				switch n := random.IntN(16); {
				case releases:
					c.Cost = -1
				case n == 0:
					c.Cost = 0
				case n == 1:
					c.Cost = store.Reset
				}
				charges = append(charges, c)
			}
			if random.IntN(4) == 0 {
				charges = append(charges, tokens)
			}
			if n := random.IntN(20); n < 3 && is[store.Blocker](r) {
				r.block(name{"p0", tokens.Key}, store.Block{For: time.Duration(n%2) * hour})
			}
			r.take(charges...)
		}
	}},
}

// slotBlockRules are those of blocks of such buckets.
var slotBlockRules = []rule{
	{"a block denies slots, and leaves those that are held as they are", onSlots(2, allow(1, 1), block(second), deny(1, 0), blocked(second, false),
		wait(second), peek(1), block(hour), release(false), release(true), deny(1, 0), block(0), allow(1, 1), allow(1, 0),
		block(hour), plain(store.Reset, 0), blocked(0, false), deny(1, 0), times(2, release(false)))},
}

// slotInspectRules are those of an Inspector of such buckets.
var slotInspectRules = []rule{
	{"a bucket is used while a slot of it is held", onSlots(2, unkept, peek(2), release(true), unkept, allow(1, 1), used, release(false), unused)},
}

// slotStatsRules are those of a StatsReporter of such buckets.
var slotStatsRules = []rule{
	{"Stats count the slots that are held, by policy", onSlots(3, peek(3), func(b *bucket) {
		if s := b.store.(store.StatsReporter).Stats().Slots; s != nil {
			b.Fatalf("%+v before a slot was taken", s)
		}
	}, allow(1, 2), by("another"), allow(1, 2), allow(1, 1), slotStats(3, 0), release(false), slotStats(2, 0),
		by("k"), release(false), release(true), slotStats(1, 1), by("another"), release(false), slotStats(0, 1))},
}

// slotStats checks how many slots are counted, if the Store counts them. A Store that knows that a slot was never held need
// not count it as lost.
func slotStats(held, lost int64) step {
	return func(b *bucket) {
		s := b.store.(store.StatsReporter).Stats().Slots
		if s != nil && (s.Held[b.Policy] != held || s.Lost[b.Policy] > lost) {
			b.Fatalf("%+v, want %d held and at most %d lost", s, held, lost)
		}
	}
}

// onSlots returns a test that does steps to a bucket of n slots.
func onSlots(n int64, steps ...step) func(*rig) {
	return func(r *rig) { r.do("k", r.slots(n), steps...) }
}

// slots changes the limit of the next charges to n slots.
func slots(n int64) step { return func(b *bucket) { b.Limit = b.rig.slots(n) } }

func waited(d time.Duration) step { return with(func(c *store.Charge) { c.Waited = d }) }

// release releases a slot, which may be lost.
func release(lost bool) step {
	return func(b *bucket) {
		_, states := b.take(store.Charge{Policy: b.Policy, Key: b.Key, Limit: b.Limit, Cost: -1})
		if states[0].Lost != lost {
			b.Fatalf("%+v, want it lost: %t", states[0], lost)
		}
	}
}

// slots compiles a concurrency limit that must fit.
func (r *rig) slots(n int64) store.Limit {
	l, err := store.NewConcurrency(n)
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// releases reports whether c releases slots. Of the State of such a charge only Allowed and Lost count.
func releases(c store.Charge) bool {
	return c.Limit.IsConcurrency() && c.Cost < 0 && c.Cost != store.Reset
}

// awaitRelease waits until the Store shows that a slot of c's bucket is free. The release may be on its way to a server.
func (r *rig) awaitRelease(c store.Charge) {
	r.Helper()
	look := store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit}
	_, want := r.exact.take([]store.Charge{look}, r.now())
	held := r.exact.at(look, r.now()).held()
	for end := time.Now().Add(10 * second); ; time.Sleep(second / 1000) {
		_, got := r.call(look)
		kept := store.Bucket{}
		if is[store.Inspector](r) {
			kept = r.inspect(name{c.Policy, c.Key})
		}
		switch {
		case got[0] == want[0] && (!is[store.Inspector](r) || heldOf(kept) == held):
			return
		case time.Now().After(end):
			r.Fatalf("10 s after a release of %+v\n\tgot  %+v, %+v\n\twant %+v", c, got[0], kept, want[0])
		}
	}
}

// slotsOrNone reports whether l is a concurrency limit, or that of a bucket of which only a block is kept.
func slotsOrNone(l store.Limit) bool { return l.IsConcurrency() || l == store.Limit{} }

// heldOf returns how many slots of a bucket are held.
func heldOf(b store.Bucket) int64 {
	if !b.Limit.IsConcurrency() {
		return 0
	}
	return b.Limit.Capacity - b.Credits
}

// held returns how many slots of e are held.
func (e exact) held() int64 {
	if !e.limit.IsConcurrency() {
		return 0
	}
	return burst(e.limit) - floor(e.tokens).Int64()
}

// underSlots returns e at now, if its limit or that of a charge is a concurrency limit. A bucket of another kind is full.
func (e exact) underSlots(l store.Limit, now int64) exact {
	tokens, ends := rat(burst(l)), int64(0)
	switch {
	case l.IsConcurrency():
		tokens = rat(burst(l) - e.held())
	case l.IsQuota():
		ends = periodEnd(l.Period, now)
	}
	e.limit, e.tokens, e.ends, e.last, e.hold = l, tokens, ends, now, 0
	return e
}

// slotState returns the state of c's bucket e, whose limit is a concurrency limit.
func (e exact) slotState(c store.Charge, fits, lost bool) store.State {
	s := store.State{Allowed: fits, Lost: lost}
	if e.tokens.Sign() > 0 {
		s.Remaining = floor(e.tokens).Int64()
	}
	if e.held() > 0 {
		s.ResetAfter = second
	}
	switch {
	case !fits && c.Cost > burst(c.Limit):
		s.RetryAfter = store.Never
	case !fits && s.Remaining < c.Cost:
		s.RetryAfter = second
	}
	return s
}
