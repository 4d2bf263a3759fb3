package storetest

import (
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

var waitRules = []rule{
	{"MaxWait reserves tokens to come, first come first served, and says how long to wait", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 1), Cost: 1, MaxWait: 3 * time.Second}
		for i := range 4 {
			want := store.State{Allowed: true, Wait: time.Duration(i) * time.Second, ResetAfter: time.Duration(i+1) * time.Second}
			r.want(r.allow(c), want)
		}
	}},
	{"a charge that would wait longer than MaxWait is denied, until it would not", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 1), Cost: 1, MaxWait: 1500 * time.Millisecond}
		r.allow(c)
		r.allow(c)
		r.want(r.deny(c), store.State{RetryAfter: 500 * time.Millisecond, ResetAfter: 2 * time.Second})
		r.advance(500*time.Millisecond - time.Microsecond)
		r.deny(c)
		r.advance(time.Microsecond)
		if s := r.allow(c); s.Wait != c.MaxWait {
			r.Fatalf("Wait is %v, want %v", s.Wait, c.MaxWait)
		}
	}},
	{"a charge without MaxWait does not overtake those that wait", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 1), Cost: 1, MaxWait: time.Second}
		r.allow(c)
		r.allow(c)
		c.MaxWait = 0
		r.want(r.deny(c), store.State{RetryAfter: 2 * time.Second, ResetAfter: 2 * time.Second})
		r.advance(time.Second)
		r.deny(c)
		r.advance(time.Second)
		r.allow(c)
	}},
	{"a refund shortens a debt, and a peek in debt is allowed", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 2), Cost: 2, MaxWait: 4 * time.Second}
		r.allow(c)
		r.allow(c)
		r.allow(c)
		r.want(r.peek(c), store.State{Allowed: true, ResetAfter: 6 * time.Second})
		c.Cost, c.MaxWait = -3, 0
		r.want(r.allow(c), store.State{Allowed: true, ResetAfter: 3 * time.Second})
	}},
	{"a MaxWait of centuries does not overflow", func(r *rig) {
		for i, limit := range slowToFill(r) {
			c := store.Charge{Policy: "p", Key: string(rune('a' + i)), Limit: limit, Cost: limit.Capacity / limit.Unit, MaxWait: math.MaxInt64}
			var last time.Duration
			for range 20 {
				if ok, s := r.take(c); ok {
					if s[0].Wait < last || s[0].Remaining != 0 {
						r.Fatalf("%+v after a wait of %v", s[0], last)
					}
					last = s[0].Wait
				} else if s[0].RetryAfter <= 0 {
					r.Fatalf("%+v", s[0])
				}
			}
		}
	}},
}
