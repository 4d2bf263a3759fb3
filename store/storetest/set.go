package storetest

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// set returns charges of one key with much, little and medium room. With one key, a store on Redis Cluster can take
// them together.
func set(r *rig) []store.Charge {
	return []store.Charge{
		{Policy: "plenty", Key: "k", Limit: r.limit(1, time.Second, 100), Cost: 1},
		{Policy: "scarce", Key: "k", Limit: r.limit(1, time.Minute, 1), Cost: 1},
		{Policy: "middle", Key: "k", Limit: r.limit(1, time.Second, 10), Cost: 2},
	}
}

func (r *rig) wantRemaining(charges []store.Charge, want ...int64) {
	r.Helper()
	for i, c := range charges {
		if got := r.peek(c).Remaining; got != want[i] {
			r.Fatalf("%s has %d left, want %d", c.Policy, got, want[i])
		}
	}
}

var setRules = []rule{
	{"a call charges every bucket, or none of them", func(r *rig) {
		charges := set(r)
		if ok, _ := r.take(charges...); !ok {
			r.Fatal("denied by full buckets")
		}
		r.wantRemaining(charges, 99, 0, 8)
		ok, states := r.take(charges...)
		if ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.wantRemaining(charges, 99, 0, 8)
		r.want(states[0], store.State{Allowed: true, Remaining: 99, ResetAfter: time.Second})
		r.want(states[1], store.State{RetryAfter: time.Minute, ResetAfter: time.Minute})
		r.want(states[2], store.State{Allowed: true, Remaining: 8, ResetAfter: 2 * time.Second})
	}},
	{"a refused call also withholds its refunds", func(r *rig) {
		charges := set(r)
		r.take(charges...)
		charges[0].Cost = -1
		if ok, _ := r.take(charges...); ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.wantRemaining(charges, 99, 0, 8)
	}},
	{"a shadow charge is charged, and vetoes nothing", func(r *rig) {
		charges := set(r)
		charges[1].Shadow = true
		r.take(charges...)
		r.wantRemaining(charges, 99, 0, 8)
		ok, states := r.take(charges...)
		if !ok {
			r.Fatal("denied by a shadow")
		}
		r.want(states[1], store.State{RetryAfter: time.Minute, ResetAfter: time.Minute})
		r.wantRemaining(charges, 98, 0, 6)
	}},
	{"a shadow charge is not charged in a call that another charge refuses", func(r *rig) {
		charges := set(r)
		charges[0].Shadow = true
		r.take(charges...)
		ok, states := r.take(charges...)
		if ok {
			r.Fatal("allowed by an empty bucket")
		}
		r.want(states[0], store.State{Allowed: true, Remaining: 99, ResetAfter: time.Second})
		r.wantRemaining(charges, 99, 0, 8)
	}},
	{"a call of shadows only is always allowed", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 1), Cost: 1, Shadow: true}
		for want := range 3 {
			ok, states := r.take(c)
			if !ok || states[0].Allowed != (want == 0) {
				r.Fatalf("call %d: ok %t, state %+v", want+1, ok, states[0])
			}
		}
	}},
	{"a call may have many charges", func(r *rig) {
		var charges []store.Charge
		for i := range 40 {
			charges = append(charges, store.Charge{Policy: "p" + string(rune('A'+i)), Key: "k", Limit: r.limit(1, time.Second, 2), Cost: 1})
		}
		for want := range 3 {
			if ok, _ := r.take(charges...); ok != (want < 2) {
				r.Fatalf("call %d: ok %t", want+1, ok)
			}
		}
	}},
}
