package storetest

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// deepest is the deepest debt, in credits below zero.
const deepest = 1 << 52

// owed returns a charge for something that was used already.
func owed(c store.Charge, cost int64) store.Charge {
	c.Cost, c.Owed = cost, true
	return c
}

var owedRules = []rule{
	{"what is owed is charged whatever the bucket holds, and the state says how long the debt lasts", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 3}
		r.want(r.allow(owed(c, 3)), store.State{Allowed: true, Remaining: 2, ResetAfter: 3 * time.Minute})
		r.want(r.allow(owed(c, 2)), store.State{Allowed: true, ResetAfter: 5 * time.Minute})
		r.want(r.allow(owed(c, 4)), store.State{Allowed: true, ResetAfter: 9 * time.Minute, Wait: 4 * time.Minute})
		r.want(r.allow(owed(c, 1)), store.State{Allowed: true, ResetAfter: 10 * time.Minute, Wait: 5 * time.Minute})
		r.want(r.deny(c), store.State{RetryAfter: 8 * time.Minute, ResetAfter: 10 * time.Minute})
		r.advance(8*time.Minute - time.Microsecond)
		r.deny(c)
		r.advance(time.Microsecond)
		r.allow(c)
	}},
	{"what is owed may be above the burst", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5)}
		r.want(r.allow(owed(c, 12)), store.State{Allowed: true, ResetAfter: 12 * time.Minute, Wait: 7 * time.Minute})
		r.want(r.peek(c), store.State{Allowed: true, ResetAfter: 12 * time.Minute})
		c.Cost = 6
		r.want(r.deny(c), store.State{RetryAfter: store.Never, ResetAfter: 12 * time.Minute})
	}},
	{"MaxWait means nothing for what is owed", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1), MaxWait: time.Second}
		r.want(r.allow(owed(c, 3)), store.State{Allowed: true, ResetAfter: 3 * time.Minute, Wait: 2 * time.Minute})
		r.want(r.allow(owed(c, 3)), store.State{Allowed: true, ResetAfter: 6 * time.Minute, Wait: 5 * time.Minute})
	}},
	{"what is owed goes to the deepest debt and no further, from which time and refunds lead back", func(r *rig) {
		for i, limit := range slowToFill(r) {
			c := store.Charge{Policy: "p", Key: string(rune('a' + i)), Limit: limit}
			last := r.allow(owed(c, 1)).ResetAfter
			for _, cost := range []int64{deepest / limit.Unit, 1, math.MaxInt64, 1} {
				s := r.allow(owed(c, cost))
				if s.ResetAfter < last || s.Remaining != 0 {
					r.Fatalf("%+v after %v, at a cost of %d", s, last, cost)
				}
				last = s.ResetAfter
			}
			after := func(credits int64) time.Duration {
				return time.Duration((credits+limit.Refill-1)/limit.Refill) * time.Microsecond
			}
			want := store.State{Allowed: true, ResetAfter: after(limit.Capacity + deepest), Wait: after(deepest)}
			r.want(r.allow(owed(c, math.MaxInt64)), want)
			r.advance(time.Hour)
			want = store.State{Allowed: true, ResetAfter: want.ResetAfter - time.Hour}
			r.want(r.peek(c), want)
			c.Cost = math.MinInt64
			r.want(r.allow(c), store.State{Allowed: true, Remaining: limit.Capacity / limit.Unit})
		}
	}},
	{"a cost of 0 or below cannot be owed", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5)}
		r.want(r.allow(owed(c, 7)), store.State{Allowed: true, ResetAfter: 7 * time.Minute, Wait: 2 * time.Minute})
		r.want(r.allow(owed(c, 0)), store.State{Allowed: true, ResetAfter: 7 * time.Minute})
		r.want(r.allow(owed(c, -1)), store.State{Allowed: true, ResetAfter: 6 * time.Minute})
		r.want(r.allow(owed(c, -3)), store.State{Allowed: true, Remaining: 2, ResetAfter: 3 * time.Minute})
		r.want(r.allow(owed(c, math.MinInt64)), store.State{Allowed: true, Remaining: 5})
	}},
	{"what is owed and what is refunded in one call are both carried out", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[0].Cost = -1
		charges[1] = owed(charges[1], 2)
		charges[2] = owed(charges[2], 20)
		ok, states := r.take(charges...)
		if !ok {
			r.Fatal("denied, although nothing could refuse it")
		}
		r.want(states[0], store.State{Allowed: true, Remaining: 100})
		r.want(states[1], store.State{Allowed: true, ResetAfter: 3 * time.Minute, Wait: 2 * time.Minute})
		r.want(states[2], store.State{Allowed: true, ResetAfter: 22 * time.Second, Wait: 12 * time.Second})
	}},
	{"a refused call also withholds what is owed", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[0] = owed(charges[0], 200)
		ok, states := r.take(charges...)
		if ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.want(states[0], store.State{Allowed: true, Remaining: 99, ResetAfter: time.Second})
		r.want(states[1], store.State{RetryAfter: time.Minute, ResetAfter: time.Minute})
		r.wantRemaining(charges, 99, 0, 8)
	}},
	{"what is owed vetoes nothing in a call with others", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[1] = owed(charges[1], 1)
		ok, states := r.take(charges...)
		if !ok {
			r.Fatal("denied by what is owed")
		}
		r.want(states[1], store.State{Allowed: true, ResetAfter: 2 * time.Minute, Wait: time.Minute})
		r.wantRemaining(charges, 98, 0, 6)
	}},
	{"a shadow that is owed is charged, too", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1), Shadow: true}
		for i := range 3 {
			owes := time.Duration(i) * time.Minute
			r.want(r.allow(owed(c, 1)), store.State{Allowed: true, ResetAfter: owes + time.Minute, Wait: owes})
		}
	}},
	{"a known refusal does not keep what is owed from being charged, and tells of the debt from then on", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1), Cost: 1}
		r.allow(c)
		for debt := range 4 {
			want := time.Duration(debt+1) * time.Minute
			for range 3 {
				r.want(r.deny(c), store.State{RetryAfter: want, ResetAfter: want})
			}
			r.allow(owed(c, 1))
		}
	}},
	{"a debt carries over to another limit", func(r *rig) {
		old, now := r.limit(1, time.Minute, 5), r.limit(3, time.Hour, 2)
		c := store.Charge{Policy: "p", Key: "k", Limit: old}
		r.allow(owed(c, 12))
		c.Limit, c.Cost = now, 1
		r.want(r.deny(c), store.State{RetryAfter: 8 * 20 * time.Minute, ResetAfter: 9 * 20 * time.Minute})
	}},
	{"of many at once each is charged what it owes, and told its own debt", func(r *rig) {
		const goroutines = 80
		charges := []store.Charge{
			owed(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 2)}, 1),
			owed(store.Charge{Policy: "q", Key: "k", Limit: r.limit(1, time.Hour, 1)}, 3),
		}
		var mu sync.Mutex
		told := make(map[time.Duration]int)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				states := make([]store.State, len(charges))
				ok, err := r.store.Take(context.Background(), charges, states)
				mu.Lock()
				defer mu.Unlock()
				if p, q := states[0], states[1]; !ok || err != nil || q.ResetAfter != 3*p.ResetAfter {
					r.Errorf("ok %t, error %v, %+v", ok, err, states)
				}
				told[states[0].ResetAfter]++
			})
		}
		wg.Wait()
		for n := range goroutines {
			if after := time.Duration(n+1) * time.Hour; told[after] != 1 {
				r.Errorf("%d calls were told %v, want 1", told[after], after)
			}
		}
	}},
	{"of many at once that go to the deepest debt none is told of a deeper one", func(r *rig) {
		const goroutines, enough = 40, 30
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 1)}
		part := owed(c, deepest/c.Limit.Unit/enough+1)
		want := store.State{Allowed: true, ResetAfter: time.Duration(deepest+c.Limit.Capacity) * time.Microsecond}
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				states := make([]store.State, 1)
				ok, err := r.store.Take(context.Background(), []store.Charge{part}, states)
				if s := states[0]; !ok || err != nil || s.Remaining != 0 || s.ResetAfter > want.ResetAfter || s.Wait != s.ResetAfter-time.Second {
					r.Errorf("ok %t, error %v, %+v", ok, err, s)
				}
			})
		}
		wg.Wait()
		r.want(r.peek(c), want)
	}},
}
