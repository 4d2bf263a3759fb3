package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// locking returns a charge of cost that locks its bucket for d if it leaves less than one token.
func locking(c store.Charge, cost int64, d time.Duration) store.Charge {
	c.Cost, c.Block = cost, d
	return c
}

var lockRules = []rule{
	{"the charge that leaves less than one token locks the bucket, and is allowed", func(r *rig) {
		const d = 15 * time.Minute
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5)}, 1, d)
		for n := range 4 {
			used := time.Duration(n + 1)
			r.want(r.allow(c), store.State{Allowed: true, Remaining: int64(4 - n), ResetAfter: used * time.Minute})
		}
		r.want(r.allow(c), looked(d, 0))
		r.wantBlocked(c, d, true)
		r.want(r.deny(c), blocked(d, 0))
		// After five minutes the bucket is full.
		r.advance(d - time.Microsecond)
		r.want(r.deny(c), blocked(time.Microsecond, 0))
		r.advance(time.Microsecond)
		r.wantBlocked(c, 0, false)
		for range 5 {
			r.allow(c)
		}
		r.want(r.deny(c), blocked(d, 0))
	}},
	{"a lock ends when a bucket of one token has it again, if that takes longer", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, 15*time.Minute, 5)}, 5, 10*time.Minute)
		r.want(r.allow(c), looked(10*time.Minute, 75*time.Minute))
		c.Cost = 1
		r.want(r.deny(c), store.State{Blocked: true, RetryAfter: 15 * time.Minute, ResetAfter: 75 * time.Minute})
		r.advance(15*time.Minute - time.Microsecond)
		r.want(r.deny(c), store.State{RetryAfter: time.Microsecond, ResetAfter: 60*time.Minute + time.Microsecond})
		r.advance(time.Microsecond)
		r.want(r.allow(c), looked(10*time.Minute, 75*time.Minute))
	}},
	{"a charge that leaves one token or more does not lock", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 4)}, 3, time.Hour)
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 1, ResetAfter: 3 * time.Minute})
		r.want(r.deny(c), store.State{Remaining: 1, RetryAfter: 2 * time.Minute, ResetAfter: 3 * time.Minute})
		r.wantBlocked(c, 0, false)
		c.Cost = 1
		r.advance(time.Minute - time.Microsecond) // two tokens but for a microsecond
		r.want(r.allow(c), looked(time.Hour, 0))
	}},
	{"a cost of 0 locks nothing, nor does a charge that is refused", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 1)}, 1, time.Minute)
		r.allow(c)
		r.advance(time.Minute)
		r.peek(c)
		c.Cost = 2
		r.want(r.deny(c), store.State{RetryAfter: store.Never, ResetAfter: 59 * time.Minute})
		c.Cost = 1
		for range 3 {
			r.want(r.deny(c), store.State{RetryAfter: 59 * time.Minute, ResetAfter: 59 * time.Minute})
		}
		r.wantBlocked(c, 0, false)

		charges := set(r)
		r.take(charges...)
		charges[2] = locking(charges[2], 8, time.Hour)
		if ok, _ := r.take(charges...); ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.wantRemaining(charges, 99, 0, 8)
	}},
	{"a refused charge does not make a lock longer", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1)}, 1, time.Hour)
		r.allow(c)
		for range 59 {
			r.advance(time.Minute)
			r.deny(c)
		}
		r.advance(time.Minute)
		r.allow(c)
	}},
	{"a refund that leaves one token or more ends a lock, and another does not", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 5)}, 5, 24*time.Hour)
		r.allow(c)
		refund := store.Charge{Policy: "p", Key: "k", Limit: c.Limit, Cost: -1}
		r.want(r.allow(refund), store.State{Allowed: true, Remaining: 1, ResetAfter: 4 * time.Hour})
		r.wantBlocked(c, 0, false)
		c.Cost = 1
		r.want(r.allow(c), looked(24*time.Hour, 0))

		debt := c
		debt.Block = 0
		r.allow(owed(debt, 2))
		r.want(r.allow(refund), looked(24*time.Hour, 0))
		r.want(r.allow(refund), looked(24*time.Hour, 0))
		r.wantBlocked(c, 24*time.Hour, true)
		r.advance(time.Hour / 2)
		r.want(r.allow(refund), store.State{Allowed: true, Remaining: 1, ResetAfter: 3*time.Hour + time.Hour/2})
	}},
	{"a refund ends a lock also if the bucket has refilled", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5)}, 5, time.Hour)
		r.allow(c)
		r.advance(30 * time.Minute)
		r.want(r.deny(c), blocked(30*time.Minute, 0))
		refund := c
		refund.Cost, refund.Block = -1, 0
		r.want(r.allow(refund), store.State{Allowed: true, Remaining: 5})
		r.allow(c)
	}},
	{"a refused call does not end a lock", func(r *rig) {
		charges := set(r)
		charges[1].Block = time.Hour
		r.take(charges...)
		r.want(r.peek(charges[1]), looked(time.Hour, time.Minute))
		charges[1].Cost, charges[1].Block = -1, 0
		charges[0].Cost = 1000
		if ok, states := r.take(charges...); ok || !states[1].Blocked {
			r.Fatalf("ok %t, %+v", ok, states)
		}
		r.wantBlocked(charges[1], time.Hour, true)
	}},
	{"what is owed locks, and makes a lock longer", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5)}, 1, time.Hour)
		r.want(r.allow(owed(c, 4)), store.State{Allowed: true, Remaining: 1, ResetAfter: 4 * time.Minute})
		s := looked(time.Hour, 0)
		s.Wait = 2 * time.Minute
		r.want(r.allow(owed(c, 3)), s)
		r.wantBlocked(c, time.Hour, true)
		r.advance(time.Minute)
		r.wantBlocked(c, 59*time.Minute, true)
		s.Wait = 2 * time.Minute
		r.want(r.allow(owed(c, 1)), s)
		r.advance(time.Hour - time.Microsecond)
		r.deny(c)
		r.advance(time.Microsecond)
		r.allow(c)
	}},
	{"a lock never shortens a longer one", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1)}, 1, time.Hour)
		r.allow(c)
		c.Block = time.Minute
		r.allow(owed(c, 1))
		r.want(r.deny(c), blocked(time.Hour, 0))
		r.wantBlocked(c, time.Hour, true)
	}},
	{"a lock never shortens a block, and makes a shorter one longer, which no refund ends", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1)}, 1, time.Hour)
		refund := store.Charge{Policy: "p", Key: "k", Limit: c.Limit, Cost: -2}
		r.block(c, 2*time.Hour)
		r.allow(owed(c, 1))
		r.wantBlocked(c, 2*time.Hour, false)
		r.allow(refund)
		r.wantBlocked(c, 2*time.Hour, false)
		r.block(c, time.Minute)
		r.allow(owed(c, 1))
		r.wantBlocked(c, time.Hour, false)
		r.allow(refund)
		r.want(r.deny(c), blocked(time.Hour, 0))
	}},
	{"a block takes the place of a lock, and unblocking and a reset end one", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 2)}, 2, 24*time.Hour)
		r.allow(c)
		r.want(r.block(c, time.Minute), looked(time.Minute, 2*time.Hour))
		r.wantBlocked(c, time.Minute, false)
		r.want(r.block(c, -1), store.State{Allowed: true, ResetAfter: 2 * time.Hour})
		r.advance(2 * time.Hour)
		r.allow(c)
		r.want(r.block(c, -1), store.State{Allowed: true, ResetAfter: 2 * time.Hour})
		r.reset(c)
		r.allow(c)
		r.want(r.reset(c), store.State{Allowed: true, Remaining: 2})
		c.Cost = 1
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 1, ResetAfter: time.Hour})
	}},
	{"a lock is of one bucket, and refuses the whole call", func(r *rig) {
		charges := set(r)
		charges[1].Block = time.Hour
		if ok, states := r.take(charges...); !ok || states[0].Blocked || !states[1].Blocked {
			r.Fatalf("ok %t, %+v", ok, states)
		}
		ok, states := r.take(charges...)
		if ok {
			r.Fatal("allowed by a locked bucket")
		}
		r.want(states[1], blocked(time.Hour, 0))
		r.advance(time.Minute)
		charges[1].Shadow = true
		if ok, states = r.take(charges...); !ok {
			r.Fatal("denied by a shadow")
		}
		r.want(states[1], blocked(59*time.Minute, 0))
	}},
	{"a shadow locks its bucket", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1), Shadow: true}, 1, time.Hour)
		r.want(r.allow(c), looked(time.Hour, 0))
		if ok, states := r.take(c); !ok || states[0] != blocked(time.Hour, 0) {
			r.Fatalf("ok %t, %+v", ok, states[0])
		}
	}},
	{"a locked bucket stays so when it could be forgotten", func(r *rig) {
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(100, time.Second, 10)}, 10, 10*time.Minute)
		r.allow(c)
		for range 5 {
			r.later(2*time.Minute - time.Microsecond)
			r.deny(c)
		}
		r.later(4 * time.Microsecond)
		r.deny(c)
		r.later(time.Microsecond)
		r.allow(c)
	}},
	{"of many identical calls at once the one that empties the bucket locks it, and the rest are refused", func(r *rig) {
		const burst, goroutines = 30, 60
		c := locking(store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, burst)}, 1, 7*time.Hour)
		var mu sync.Mutex
		told := make(map[store.State]int)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				states := make([]store.State, 1)
				ok, err := r.store.Take(context.Background(), []store.Charge{c}, states)
				if err != nil || ok != states[0].Allowed {
					r.Errorf("ok %t, error %v, %+v", ok, err, states[0])
				}
				mu.Lock()
				defer mu.Unlock()
				told[states[0]]++
			})
		}
		r.join(&wg)
		want := map[store.State]int{
			looked(7*time.Hour, burst*time.Hour):                                      1,
			{Blocked: true, RetryAfter: 7 * time.Hour, ResetAfter: burst * time.Hour}: goroutines - burst,
		}
		for n := int64(1); n < burst; n++ {
			want[store.State{Allowed: true, Remaining: n, ResetAfter: time.Duration(burst-n) * time.Hour}] = 1
		}
		for s, n := range want {
			if told[s] != n {
				r.Errorf("%d calls were told %+v, want %d", told[s], s, n)
			}
			delete(told, s)
		}
		if len(told) > 0 {
			r.Errorf("calls were told %+v", told)
		}
		r.wantBlocked(c, 7*time.Hour, true)
	}},
}
