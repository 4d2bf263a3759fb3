package storetest

import (
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// longest is the longest block.
const longest = 1 << 50 * time.Microsecond

// block makes a charge of c's bucket that blocks it for d, or unblocks it if d is below 0.
func (r *rig) block(c store.Charge, d time.Duration) store.State {
	r.Helper()
	c.Cost, c.MaxWait, c.Owed, c.Refilled, c.Outage, c.Block = 0, 0, false, 0, 0, d
	return r.allow(c)
}

// blocked returns the state of a bucket that is blocked for left and would be full after reset.
func blocked(left, reset time.Duration) store.State {
	return store.State{Blocked: true, RetryAfter: left, ResetAfter: max(left, reset)}
}

// looked is blocked for a charge that is allowed.
func looked(left, reset time.Duration) store.State {
	s := blocked(left, reset)
	s.Allowed = true
	return s
}

// wantBlocked checks what an Inspector reports of a block of c's bucket.
func (r *rig) wantBlocked(c store.Charge, left time.Duration, lock bool) {
	r.Helper()
	if _, ok := r.store.(store.Inspector); !ok {
		return
	}
	b := r.inspect(c)
	if b.Blocked != left || b.Locked != lock {
		r.Fatalf("%+v, want it blocked for %v, by a lock: %t", b, left, lock)
	}
	if left > 0 {
		r.want(b.State(c.Limit), r.peek(c))
	}
}

var blockRules = []rule{
	{"a blocked bucket denies for as long as it is blocked, and not a microsecond longer", func(r *rig) {
		for i, limit := range slowToFill(r) {
			for _, d := range []time.Duration{time.Microsecond, 1234567 * time.Microsecond, time.Hour, 400 * 24 * time.Hour} {
				c := store.Charge{Policy: "p" + d.String(), Key: string(rune('a' + i)), Limit: limit, Cost: 1}
				r.want(r.block(c, d), looked(d, 0))
				r.want(r.deny(c), blocked(d, 0))
				r.wantBlocked(c, d, false)
				r.advance(d - time.Microsecond)
				r.want(r.deny(c), blocked(time.Microsecond, 0))
				r.want(r.peek(c), looked(time.Microsecond, 0))
				r.advance(time.Microsecond)
				r.wantBlocked(c, 0, false)
				r.want(r.peek(c), store.State{Allowed: true, Remaining: limit.Capacity / limit.Unit})
				r.allow(c)
			}
		}
	}},
	{"a bucket refills under a block, and is after it what it would be without", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 10), Cost: 8}
		r.allow(c)
		r.want(r.block(c, 5*time.Minute), looked(5*time.Minute, 8*time.Minute))
		r.want(r.deny(c), store.State{Blocked: true, RetryAfter: 6 * time.Minute, ResetAfter: 8 * time.Minute})
		c.Cost = 1
		r.want(r.deny(c), blocked(5*time.Minute, 8*time.Minute))
		r.advance(3 * time.Minute)
		r.want(r.deny(c), blocked(2*time.Minute, 5*time.Minute))
		r.advance(2 * time.Minute)
		r.want(r.peek(c), store.State{Allowed: true, Remaining: 7, ResetAfter: 3 * time.Minute})
		c.Cost = 7
		r.allow(c)
		c.Cost = 1
		r.deny(c)
	}},
	{"what is owed and what is refunded is charged under a block, which goes on", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 2}
		r.allow(c)
		r.block(c, 4*time.Minute)
		r.want(r.allow(owed(c, 1)), looked(4*time.Minute, 4*time.Minute))
		s := looked(4*time.Minute, 7*time.Minute)
		s.Wait = 2 * time.Minute
		r.want(r.allow(owed(c, 4)), s)
		c.Cost = -4
		r.want(r.allow(c), looked(4*time.Minute, 0))
		c.Cost = -10
		r.want(r.allow(c), looked(4*time.Minute, 0))
		r.want(r.allow(owed(c, 7)), store.State{Allowed: true, Blocked: true, RetryAfter: 4 * time.Minute, ResetAfter: 7 * time.Minute, Wait: 2 * time.Minute})
		c.Cost = 1
		r.deny(c)
		r.wantBlocked(c, 4*time.Minute, false)
		r.advance(4 * time.Minute)
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 1, ResetAfter: 4 * time.Minute})
	}},
	{"a block takes the place of an earlier one, also of a longer one", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 1}
		for _, d := range []time.Duration{time.Hour, 2 * time.Hour, time.Minute, time.Second} {
			r.want(r.block(c, d), looked(d, 0))
			r.want(r.deny(c), blocked(d, 0))
			r.advance(d / 4)
		}
		r.advance(750*time.Millisecond - time.Microsecond)
		r.deny(c)
		r.advance(time.Microsecond)
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 4, ResetAfter: time.Second})
	}},
	{"an unblocked bucket is what it would be without the block", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 10), Cost: 8}
		r.allow(c)
		r.block(c, time.Hour)
		r.advance(time.Minute)
		r.deny(c)
		r.want(r.block(c, -1), store.State{Allowed: true, Remaining: 3, ResetAfter: 7 * time.Minute})
		r.wantBlocked(c, 0, false)
		r.want(r.block(c, math.MinInt64), store.State{Allowed: true, Remaining: 3, ResetAfter: 7 * time.Minute})
		c.Cost = 3
		r.allow(c)
		c.Cost = 1
		r.deny(c)

		c.Key = "full"
		r.block(c, time.Hour)
		r.want(r.block(c, -1), store.State{Allowed: true, Remaining: 10})
		r.wantBlocked(c, 0, false)
		c.Key = "unknown"
		r.want(r.block(c, -1), store.State{Allowed: true, Remaining: 10})
		c.Cost = 10
		r.allow(c)
	}},
	{"a reset ends a block, and a refund does not, however large", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 10), Cost: 6}
		r.allow(c)
		r.block(c, time.Hour)
		for _, cost := range []int64{-1, -10, -math.MaxInt64} {
			c.Cost = cost
			r.want(r.allow(c), looked(time.Hour, time.Duration(max(0, 6+cost))*time.Hour))
		}
		r.want(r.reset(c), store.State{Allowed: true, Remaining: 10})
		r.wantBlocked(c, 0, false)
		c.Cost = 10
		r.allow(c)
	}},
	{"a changed limit does not end a block", func(r *rig) {
		old, now := r.limit(1, time.Minute, 10), r.limit(7, time.Second, 20)
		c := store.Charge{Policy: "p", Key: "k", Limit: old, Cost: 8}
		r.allow(c)
		r.block(c, time.Hour)
		c.Limit, c.Cost = now, 1
		r.want(r.deny(c), blocked(time.Hour, 0))
		r.allow(owed(c, 2))
		r.want(r.deny(c), blocked(time.Hour, 0))
		r.wantBlocked(c, time.Hour, false)
		r.advance(time.Hour - time.Microsecond)
		r.deny(c)
		r.advance(time.Microsecond)
		r.allow(c)
	}},
	{"a bucket is blocked under the limit that it is kept under", func(r *rig) {
		kept, other := r.limit(1, time.Minute, 10), r.limit(1, time.Hour, 600)
		c := store.Charge{Policy: "p", Key: "k", Limit: kept, Cost: 6}
		r.allow(c)
		c.Limit = other
		for _, d := range []time.Duration{time.Hour, time.Minute, -1} {
			r.block(c, d)
			r.wantUnder(c, kept)
		}
		r.block(c, 2*time.Minute)
		r.advance(2 * time.Minute)
		c.Limit = kept
		r.want(r.peek(c), store.State{Allowed: true, Remaining: 6, ResetAfter: 4 * time.Minute})
	}},
	{"a bucket that is full when it is blocked is full after that", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: store.Limit{Unit: 1, Refill: 1 << 52, Capacity: 1 << 52}}
		r.block(c, time.Hour)
		c.Limit, c.Cost = r.limit(1, time.Hour, 600), 600
		r.deny(c)
		r.later(time.Hour - time.Microsecond)
		r.deny(c)
		r.later(time.Microsecond)
		r.want(r.allow(c), store.State{Allowed: true, ResetAfter: 600 * time.Hour})
	}},
	{"a charge with MaxWait does not wait for the end of a block", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 1, MaxWait: time.Hour}
		r.block(c, 10*time.Second)
		for range 3 {
			r.want(r.deny(c), blocked(10*time.Second, 0))
		}
		r.advance(10 * time.Second)
		for i := range 7 {
			if s := r.allow(c); s.Wait != max(0, time.Duration(i-4)*time.Second) {
				r.Fatalf("charge %d waits %v", i+1, s.Wait)
			}
		}
		// One that would wait for its tokens longer than for the end.
		r.block(c, time.Second)
		c.MaxWait = time.Second
		r.want(r.deny(c), store.State{Blocked: true, RetryAfter: 2 * time.Second, ResetAfter: 7 * time.Second})
	}},
	{"a cost above the burst is never allowed, also by a blocked bucket", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 6}
		r.block(c, time.Minute)
		r.want(r.deny(c), store.State{Blocked: true, RetryAfter: store.Never, ResetAfter: time.Minute})
	}},
	{"a call is refused by one blocked bucket, and charges none", func(r *rig) {
		charges := set(r)
		r.block(charges[0], time.Minute)
		charges[1] = owed(charges[1], 3)
		for range 2 {
			ok, states := r.take(charges...)
			if ok {
				r.Fatal("allowed by a blocked bucket")
			}
			r.want(states[0], blocked(time.Minute, 0))
			r.want(states[1], store.State{Allowed: true, Remaining: 1})
			r.want(states[2], store.State{Allowed: true, Remaining: 10})
		}
		r.advance(time.Minute)
		r.wantRemaining(charges, 100, 1, 10)
	}},
	{"a blocked shadow refuses nothing, and is not charged", func(r *rig) {
		charges := set(r)
		charges[0].Shadow = true
		r.block(charges[0], time.Hour)
		ok, states := r.take(charges...)
		if !ok {
			r.Fatal("denied by a shadow")
		}
		r.want(states[0], blocked(time.Hour, 0))
		r.wantRemaining(charges, 0, 0, 8)
		r.advance(time.Hour)
		r.wantRemaining(charges, 100, 1, 10)
	}},
	{"a call may block some buckets and charge others", func(r *rig) {
		charges := set(r)
		charges[0].Cost, charges[0].Block = 0, time.Hour
		charges[1].Cost, charges[1].Block, charges[1].Shadow = 0, time.Minute, true
		ok, states := r.take(charges...)
		if !ok {
			r.Fatal("denied by a block that begins")
		}
		r.want(states[0], looked(time.Hour, 0))
		r.want(states[1], looked(time.Minute, 0))
		r.want(states[2], store.State{Allowed: true, Remaining: 8, ResetAfter: 2 * time.Second})
		r.wantBlocked(charges[0], time.Hour, false)
		r.wantBlocked(charges[1], time.Minute, false)
	}},
	{"a refused call also withholds its blocks", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[0].Cost, charges[0].Block = 0, time.Hour
		if ok, _ := r.take(charges...); ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.wantRemaining(charges, 99, 0, 8)
		r.block(charges[0], time.Minute)
		charges[0].Block = -1
		r.take(charges...)
		r.want(r.peek(charges[0]), looked(time.Minute, time.Second))
	}},
	{"a bucket stays blocked when it could be forgotten", func(r *rig) {
		for name, prepare := range map[string]func(c store.Charge){
			"unknown": func(store.Charge) {},
			"used":    func(c store.Charge) { r.allow(c) },
			"in debt": func(c store.Charge) { r.allow(owed(c, 30)) },
			"blocked": func(c store.Charge) { r.block(c, time.Second) },
		} {
			c := store.Charge{Policy: "p", Key: name, Limit: r.limit(100, time.Second, 10), Cost: 1}
			prepare(c)
			r.block(c, 10*time.Minute)
			for range 4 {
				r.later(2 * time.Minute)
				r.deny(c)
			}
			c.Cost = -1
			r.allow(c) // of which the bucket is full
			c.Cost = 1
			r.later(2*time.Minute - time.Microsecond)
			r.want(r.deny(c), blocked(time.Microsecond, 0))
			r.later(time.Microsecond)
			r.allow(c)
		}
	}},
	{"time that runs backwards neither ends a block nor shortens it", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 1}
		r.block(c, 10*time.Second)
		r.advance(-5 * time.Second)
		r.want(r.deny(c), blocked(15*time.Second, 0))
		r.advance(15*time.Second - time.Microsecond)
		r.deny(c)
		r.advance(time.Microsecond)
		r.allow(c)
		r.advance(-time.Microsecond)
	}},
	{"a block is rounded up to a microsecond, and is at most 35 years", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 1}
		r.want(r.block(c, 1), looked(time.Microsecond, 0))
		r.want(r.block(c, 1001), looked(2*time.Microsecond, 0))
		for _, d := range []time.Duration{math.MaxInt64, longest + 1, longest, longest - 1} {
			r.want(r.block(c, d), looked(longest, 0))
		}
		r.want(r.block(c, longest-time.Microsecond), looked(longest-time.Microsecond, 0))
		r.deny(c)
	}},
	{"a known refusal does not outlast a block, nor keep one from being made", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 1), Cost: 1}
		for range 3 {
			r.allow(c)
			r.deny(c)
			r.block(c, time.Hour)
			r.want(r.deny(c), blocked(time.Hour, time.Second))
			r.want(r.deny(c), blocked(time.Hour, time.Second))
			r.block(c, time.Minute)
			r.want(r.deny(c), blocked(time.Minute, time.Second))
			r.block(c, -1)
			r.want(r.deny(c), store.State{RetryAfter: time.Second, ResetAfter: time.Second})
			r.block(c, time.Hour)
			r.deny(c)
			r.reset(c)
		}
	}},
}
