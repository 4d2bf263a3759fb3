package storetest

import (
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

var chargeRules = []rule{
	{"a bucket that was never charged is full", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5)}
		r.want(r.peek(c), store.State{Allowed: true, Remaining: 5})
	}},
	{"a charge takes its cost, and the state says what is left", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 2}
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 3, ResetAfter: 2 * time.Second})
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 1, ResetAfter: 4 * time.Second})
	}},
	{"what a bucket cannot pay is denied, and changes nothing", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 2}
		r.allow(c)
		r.allow(c)
		denied := store.State{Remaining: 1, RetryAfter: time.Second, ResetAfter: 4 * time.Second}
		for range 10 {
			r.want(r.deny(c), denied)
		}
		c.Cost = 1
		r.want(r.allow(c), store.State{Allowed: true, ResetAfter: 5 * time.Second})
	}},
	{"a cost of 0 peeks: it is always allowed and changes nothing", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 1), Cost: 1}
		r.allow(c)
		for range 10 {
			r.want(r.peek(c), store.State{Allowed: true, ResetAfter: time.Second})
		}
		r.advance(time.Second)
		r.allow(c)
	}},
	{"a refund adds tokens", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 5}
		r.allow(c)
		c.Cost = -2
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 2, ResetAfter: 3 * time.Second})
	}},
	{"a refund adds tokens at most to full", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 1}
		r.allow(c)
		c.Cost = -3
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 5})
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 5})
		c.Cost = 6
		r.deny(c)
	}},
	{"a refund of math.MinInt64 fills any bucket", func(r *rig) {
		for name, limit := range map[string]store.Limit{
			"1/s":     r.limit(1, time.Second, 5),
			"1/month": r.limit(1, month, 800),
			"10^6/s":  r.limit(1_000_000, time.Second, 1_000_000_000),
		} {
			c := store.Charge{Policy: "p", Key: name, Limit: limit, Cost: limit.Capacity / limit.Unit}
			r.allow(c)
			c.Cost, c.MaxWait = 1, 24*365*time.Hour
			r.allow(c)
			c.Cost, c.MaxWait = math.MinInt64, 0
			r.want(r.allow(c), store.State{Allowed: true, Remaining: limit.Capacity / limit.Unit})
		}
	}},
	{"a cost above the burst is never allowed, also with MaxWait", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5)}
		for _, cost := range []int64{6, 7, math.MaxInt64} {
			for _, wait := range []time.Duration{0, time.Hour, math.MaxInt64} {
				c.Cost, c.MaxWait = cost, wait
				r.want(r.deny(c), store.State{Remaining: 5, RetryAfter: store.Never})
			}
		}
	}},
}
