package storetest

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// past returns a charge for tokens used in an outage without the store. Some are still missing, and some have
// refilled.
func past(c store.Charge, missing, refilled int64, outage time.Duration) store.Charge {
	c.Cost, c.Owed, c.Refilled, c.Outage = missing, true, refilled, outage
	return c
}

var pastRules = []rule{
	{"what was used while a bucket was full is paid by what it did not refill", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5)}
		r.want(r.allow(past(c, 0, 10, 10*time.Minute)), store.State{Allowed: true, Remaining: 5})
		c.Key = "another"
		r.want(r.allow(past(c, 2, 10, 10*time.Minute)), store.State{Allowed: true, Remaining: 3, ResetAfter: 2 * time.Minute})
		c.Key = "third"
		r.want(r.allow(past(c, 1, 10, 4*time.Minute)), store.State{Allowed: true, ResetAfter: 7 * time.Minute, Wait: 2 * time.Minute})
	}},
	{"what was used while others used the bucket is charged", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 5}
		r.allow(c)
		r.advance(4 * time.Minute)
		r.want(r.allow(past(c, 0, 3, 4*time.Minute)), store.State{Allowed: true, Remaining: 1, ResetAfter: 4 * time.Minute})
		r.want(r.allow(past(c, 1, 8, time.Hour)), store.State{Allowed: true, ResetAfter: 13 * time.Minute, Wait: 8 * time.Minute})
	}},
	{"what a bucket did not refill pays once, also if others use the bucket in between", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 1}
		r.allow(past(c, 1, 4, 10*time.Minute))
		r.advance(time.Second)
		r.allow(c)
		r.advance(time.Second)
		s := r.allow(past(c, 0, 7, 10*time.Minute+2*time.Second)) // of which 6 are paid
		r.want(s, store.State{Allowed: true, Remaining: 2, ResetAfter: 3*time.Minute - 2*time.Second})
		s = r.allow(past(c, 0, 1, 10*time.Minute+2*time.Second))
		r.want(s, store.State{Allowed: true, Remaining: 1, ResetAfter: 4*time.Minute - 2*time.Second})
	}},
	{"what a bucket did not refill before an outage does not pay for that", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 1}
		r.allow(past(c, 1, 4, 10*time.Minute))
		r.advance(30 * time.Second)
		r.want(r.allow(past(c, 0, 2, 30*time.Second)), store.State{Allowed: true, Remaining: 2, ResetAfter: 2*time.Minute + 30*time.Second})
	}},
	{"a forgotten bucket pays for no more than the outage that it was first charged for", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 1}
		r.allow(past(c, 0, 1, 2*time.Minute))
		r.want(r.allow(past(c, 0, 8, time.Hour)), store.State{Allowed: true, ResetAfter: 7 * time.Minute, Wait: 2 * time.Minute})
	}},
	{"a bucket that was reset knows nothing of what it did not refill", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5), Cost: 1}
		r.allow(past(c, 1, 10, 10*time.Minute))
		c.Cost = store.Reset
		r.allow(c)
		r.want(r.allow(past(c, 0, 10, 10*time.Minute)), store.State{Allowed: true, Remaining: 5})
	}},
	{"a refused call charges no past", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[0] = past(charges[0], 3, 200, time.Second)
		if ok, _ := r.take(charges...); ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.wantRemaining(charges, 99, 0, 8)
	}},
	{"a past in a call with others is charged, and vetoes nothing", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[1] = past(charges[1], 0, 2, time.Second)
		ok, states := r.take(charges...)
		if !ok {
			r.Fatal("denied by what has been used")
		}
		r.want(states[1], store.State{Allowed: true, ResetAfter: 3 * time.Minute, Wait: 2 * time.Minute})
		r.wantRemaining(charges, 98, 0, 6)
	}},
}
