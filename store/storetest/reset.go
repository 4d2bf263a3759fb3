package storetest

import (
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// reset makes a charge of c's bucket that removes it.
func (r *rig) reset(c store.Charge) store.State {
	r.Helper()
	c.Cost, c.Block = store.Reset, 0
	return r.allow(c)
}

var resetRules = []rule{
	{"a reset bucket is full under any limit", func(r *rig) {
		large, small := r.limit(10, time.Minute, 600), r.limit(1, time.Second, 10)
		for name, spend := range map[string]store.Charge{
			"spent":      {Limit: large, Cost: 600},
			"in debt":    owed(store.Charge{Limit: large}, 1000),
			"deep":       owed(store.Charge{Limit: large}, math.MaxInt64),
			"hardly":     {Limit: large, Cost: 1},
			"by another": {Limit: small, Cost: 10},
		} {
			for _, by := range []store.Limit{small, large} {
				c := spend
				c.Policy, c.Key = "p", name
				r.allow(c)
				c.Limit, c.Owed = by, false
				r.want(r.reset(c), store.State{Allowed: true, Remaining: by.Capacity / by.Unit})
				c.Limit = large
				r.want(r.peek(c), store.State{Allowed: true, Remaining: 600})
				c.Limit = small
				r.want(r.peek(c), store.State{Allowed: true, Remaining: 10})
				c.Limit, c.Cost = large, 600
				r.allow(c)
				c.Cost = 1
				r.deny(c)
				r.reset(c)
			}
		}
	}},
	{"a bucket that has refilled under a lower limit is full under a higher one after a reset", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 10), Cost: 1}
		r.allow(c)
		c.Cost = -1
		r.allow(c)
		r.reset(c)
		c.Limit, c.Cost = r.limit(1, time.Hour, 600), 600
		r.allow(c)
	}},
	{"a reset of an unknown bucket is allowed, and leaves it full", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 10)}
		for range 2 {
			r.want(r.reset(c), store.State{Allowed: true, Remaining: 10})
			r.want(r.peek(c), store.State{Allowed: true, Remaining: 10})
		}
		c.Cost = 10
		r.allow(c)
	}},
	{"a refund of all but as much as a reset is no reset", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 600), Cost: 600}
		r.allow(c)
		c.Limit, c.Cost = r.limit(1, time.Hour, 10), -math.MaxInt64
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 10})
		c.Limit = r.limit(1, time.Hour, 600)
		if s := r.peek(c); s.Remaining != 10 {
			r.Fatalf("%+v, want 10 left", s)
		}
	}},
	{"a refused call also withholds its resets", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[0].Cost = store.Reset
		ok, states := r.take(charges...)
		if ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.want(states[0], store.State{Allowed: true, Remaining: 99, ResetAfter: time.Second})
		r.wantRemaining(charges, 99, 0, 8)
	}},
	{"a call may reset some buckets and charge others", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[1].Cost = store.Reset
		charges = append(charges,
			store.Charge{Policy: "new", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 2},
			store.Charge{Policy: "unknown", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: store.Reset})
		ok, states := r.take(charges...)
		if !ok {
			r.Fatal("denied by a reset")
		}
		r.want(states[1], store.State{Allowed: true, Remaining: 1})
		r.wantRemaining(charges, 98, 1, 6, 3, 5)
	}},
	{"a shadow can reset a bucket, and no reset is owed", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 10), Cost: 10}
		r.allow(c)
		c.Cost, c.Shadow, c.Owed, c.MaxWait = store.Reset, true, true, time.Hour
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 10})
		r.want(r.peek(c), store.State{Allowed: true, Remaining: 10})
	}},
	{"a known refusal ends with a reset under another limit", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 10), Cost: 10}
		for range 3 {
			r.allow(c)
			r.deny(c)
			other := c
			other.Limit = r.limit(1, time.Second, 1)
			r.reset(other)
		}
		r.allow(c)
	}},
}
