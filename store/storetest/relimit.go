package storetest

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// later moves the clock, and lets a Forgetter forget.
func (r *rig) later(d time.Duration) {
	r.advance(d)
	if f, ok := r.store.(Forgetter); ok {
		f.Forget(d)
	}
}

// wantUnder checks that an Inspector keeps c's bucket under a limit.
func (r *rig) wantUnder(c store.Charge, limit store.Limit) {
	r.Helper()
	if _, ok := r.store.(store.Inspector); !ok {
		return
	}
	if b := r.inspect(c); b.Limit != limit {
		r.Fatalf("%s of %s is kept under %+v, want %+v", c.Key, c.Policy, b.Limit, limit)
	}
}

var relimitRules = []rule{
	{"a bucket whose limit is changed is not full when it would be under the old limit, whatever the charge was told", func(r *rig) {
		quick, slow := r.limit(10, time.Second, 10), r.limit(1000, time.Hour, 1000)
		other := store.Charge{Policy: "other", Key: "k", Limit: r.limit(1, time.Hour, 1), Cost: 1}
		r.allow(other)
		for name, first := range map[string]func(c store.Charge){
			"denied":         func(c store.Charge) { r.deny(c) },
			"never allowed":  func(c store.Charge) { c.Cost = 1001; r.deny(c) },
			"too far off":    func(c store.Charge) { c.MaxWait = time.Second; r.deny(c) },
			"a shadow":       func(c store.Charge) { c.Shadow = true; r.take(c) },
			"one of several": func(c store.Charge) { r.take(c, other) },
			"a shadow of several": func(c store.Charge) {
				c.Shadow = true
				r.take(other, c)
			},
			"owed in a refused call":   func(c store.Charge) { r.take(owed(c, 3), other) },
			"refunded in such a call":  func(c store.Charge) { c.Cost = -1; r.take(c, other) },
			"denied, and denied again": func(c store.Charge) { r.deny(c); r.deny(c) },
		} {
			for debt := range int64(3) {
				spend := store.Charge{Policy: name, Key: "k", Limit: quick, Cost: 10}
				r.allow(spend)
				if debt > 0 {
					r.allow(owed(spend, 100*debt))
				}
				c := spend
				c.Limit, c.Cost = slow, 1
				first(c)
				r.wantUnder(c, slow)
				for range 5 {
					r.later(500 * time.Millisecond)
					r.deny(c)
				}
				// Within 2.5 s not a token has come.
				want := time.Duration(1000+100*debt)*3600*time.Millisecond - 2500*time.Millisecond
				r.want(r.peek(c), store.State{Allowed: true, ResetAfter: want})
				r.reset(spend)
			}
		}
	}},
	{"a peek leaves the bucket under its limit, and so does a reset that is refused", func(r *rig) {
		quick, slow := r.limit(1, time.Minute, 10), r.limit(1, time.Hour, 1000)
		other := store.Charge{Policy: "other", Key: "k", Limit: slow, Cost: 1001}
		for name, look := range map[string]func(c store.Charge){
			"a peek":                 func(c store.Charge) { r.peek(c) },
			"one with MaxWait":       func(c store.Charge) { c.Cost, c.MaxWait = 0, time.Hour; r.allow(c) },
			"one that is owed":       func(c store.Charge) { r.allow(owed(c, 0)) },
			"one in a refused call":  func(c store.Charge) { c.Cost = 0; r.take(c, other) },
			"a reset in such a call": func(c store.Charge) { c.Cost = store.Reset; r.take(c, other) },
			"what was never kept":    func(c store.Charge) { c.Key = "new"; c.Cost = 1001; r.deny(c) },
			"a denial by a full one": func(c store.Charge) { c.Limit = r.limit(1, time.Hour, 2); c.Cost = 3; r.deny(c) },
		} {
			c := store.Charge{Policy: name, Key: "k", Limit: quick, Cost: 5}
			r.allow(c)
			look(store.Charge{Policy: name, Key: "k", Limit: slow})
			r.wantUnder(c, quick)
			r.want(r.peek(c), store.State{Allowed: true, Remaining: 5, ResetAfter: 5 * time.Minute})
		}
	}},
	{"a bucket is not forgotten before it is full under each limit that it was charged under", func(r *rig) {
		large, small := r.limit(1, time.Hour, 171), r.limit(10, time.Second, 10)
		third := r.limit(1, time.Minute, 50)
		for name, use := range map[string]func(c store.Charge){
			"denied":     func(c store.Charge) { r.deny(c) },
			"by another": func(c store.Charge) { r.deny(c); c.Limit = third; r.deny(c); c.Limit = small; r.deny(c) },
			"allowed": func(c store.Charge) {
				r.deny(c)
				r.later(time.Second)
				c.Cost = 10
				r.allow(c)
			},
			"in debt": func(c store.Charge) { r.allow(owed(c, 5)) },
			"refunded": func(c store.Charge) {
				r.allow(owed(c, 10))
				c.Cost = -10
				r.allow(c)
			},
			"blocked": func(c store.Charge) {
				r.deny(c)
				r.block(c, time.Second)
				r.later(time.Second / 2)
				r.deny(c)
				r.later(time.Second)
				r.block(c, time.Minute)
				r.block(c, -1)
			},
			"locked": func(c store.Charge) {
				r.deny(c)
				r.later(time.Second)
				r.allow(locking(c, 10, time.Second))
				r.later(3 * time.Second)
			},
		} {
			c := store.Charge{Policy: name, Key: "k", Limit: large, Cost: 171}
			r.allow(c)
			for range 3 {
				c.Limit, c.Cost = small, 1
				use(c)
				r.wantUnder(c, small)
				for range 5 {
					r.later(time.Second) // and no charge corrects what a Store remembers
				}
				r.want(r.peek(c), store.State{Allowed: true, Remaining: 10})
				c.Limit = large
				r.deny(c)
				r.wantUnder(c, large)
			}
			c.Limit = small
			r.deny(c)
			r.later(200 * time.Hour)
			if _, ok := r.store.(Forgetter); ok && r.inspect(c) != (store.Bucket{}) {
				r.Fatalf("%s: %+v, want it forgotten, as it is full under all its limits", name, r.inspect(c))
			}
			c.Limit = large
			r.allow(c)
			c.Limit = small
			r.allow(c)
			r.reset(c)
			c.Limit, c.Cost = large, 171
			r.allow(c) // a reset forgets it under all limits
		}
	}},
	{"a hold outlasts a limit that takes longer to fill", func(r *rig) {
		large, small := r.limit(1, time.Second, 1000), r.limit(1, time.Second, 1)
		c := store.Charge{Policy: "p", Key: "k", Limit: large, Cost: 990} // full in 990 s
		r.allow(c)
		c.Limit, c.Cost = r.limit(1, 100*time.Second, 10), 1 // from empty in 1,000 s, and from here in 100 s
		r.allow(c)
		c.Limit = small
		r.allow(c)
		for range 3 {
			r.later(200 * time.Second)
			r.want(r.peek(c), store.State{Allowed: true, Remaining: 1})
			r.deny(store.Charge{Policy: "p", Key: "k", Limit: large, Cost: 900})
			r.allow(c)
		}
	}},
	{"limits in turn grant no more than all of them would, each with a bucket of its own", func(r *rig) {
		grantInTurn(r, 8, 60)
	}},
}
