package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// inspectRules hold for Stores that are Inspectors.
var inspectRules = inspecting([]rule{
	{"of a bucket that was never charged nothing is kept", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5)}
		b := r.inspect(c)
		if b != (store.Bucket{}) || b.Used() {
			r.Fatalf("%+v, want none", b)
		}
		r.want(b.State(c.Limit), store.State{Allowed: true, Remaining: 5})
		r.peek(c)
		if b := r.inspect(c); b != (store.Bucket{}) {
			r.Fatalf("%+v after a peek, want none", b)
		}
	}},
	{"of a bucket the limit and what it holds are kept until it has refilled", func(r *rig) {
		for i, limit := range slowToFill(r) {
			c := store.Charge{Policy: "p", Key: string(rune('a' + i)), Limit: limit, Cost: max(1, limit.Capacity/limit.Unit/2)}
			reset := r.allow(c).ResetAfter
			r.wantKept(c)
			r.advance(reset / 3)
			r.wantKept(c)
			r.advance(reset - reset/3 - time.Microsecond)
			r.wantKept(c)
			r.advance(time.Microsecond)
			if b := r.inspect(c); b.Used() {
				r.Fatalf("%+v is used, want it refilled", b)
			}
		}
	}},
	{"of a bucket in debt the debt is kept", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Minute, 5)}
		r.allow(owed(c, 12))
		r.wantKept(c)
		r.want(r.inspect(c).State(c.Limit), store.State{Allowed: true, ResetAfter: 12 * time.Minute})
		r.advance(10 * time.Minute)
		r.want(r.inspect(c).State(c.Limit), store.State{Allowed: true, Remaining: 3, ResetAfter: 2 * time.Minute})
	}},
	{"a bucket is kept under the limit that it was last charged under", func(r *rig) {
		tiers := []store.Limit{r.limit(1, time.Minute, 600), r.limit(7, time.Second, 10), r.limit(3, time.Hour, 50)}
		for i := range 9 {
			c := store.Charge{Policy: "p", Key: "k", Limit: tiers[i%3], Cost: 1}
			r.allow(c)
			for range 2 {
				r.wantKept(c)
				b := r.inspect(c)
				for _, limit := range tiers {
					c.Limit = limit
					r.want(b.State(limit), r.peek(c))
				}
				c.Limit = tiers[i%3]
				r.advance(100 * time.Millisecond)
			}
		}
	}},
	{"of a bucket that was reset nothing is kept", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 5), Cost: 3}
		r.allow(c)
		r.reset(c)
		if b := r.inspect(c); b != (store.Bucket{}) {
			r.Fatalf("%+v, want none", b)
		}
	}},
	{"to inspect a bucket changes nothing", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 10), Cost: 4}
		r.allow(c)
		want := r.inspect(c)
		for range 10 {
			if b := r.inspect(c); b != want {
				r.Fatalf("%+v, want %+v", b, want)
			}
		}
		r.advance(time.Second / 2)
		r.inspect(c)
		r.advance(time.Second / 2)
		r.want(r.allow(c), store.State{Allowed: true, Remaining: 3, ResetAfter: 7 * time.Second})
		r.deny(c)
		r.inspect(c)
		r.deny(c)
		r.advance(time.Second)
		r.allow(c)
	}},
	{"time that runs backwards does not change what is kept", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 10), Cost: 4}
		r.allow(c)
		r.advance(-time.Second)
		r.wantKept(c)
		r.want(r.inspect(c).State(c.Limit), store.State{Allowed: true, Remaining: 6, ResetAfter: 4 * time.Second})
	}},
	{"a refund is seen at once", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, 10), Cost: 10}
		r.allow(c)
		r.deny(c)
		c.Cost = -4
		r.allow(c)
		r.wantKept(c)
		r.want(r.inspect(c).State(c.Limit), store.State{Allowed: true, Remaining: 4, ResetAfter: 6 * time.Hour})
	}},
	{"a call without a name is malformed, and one whose context has ended says so", func(r *rig) {
		i := r.store.(store.Inspector)
		for _, name := range [][2]string{{"", "k"}, {"p", ""}} {
			if b, err := i.Inspect(context.Background(), name[0], name[1]); b != (store.Bucket{}) || !errors.Is(err, store.ErrInvalidCall) {
				r.Errorf("%q: %+v, %v, want ErrInvalidCall", name, b, err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if b, err := i.Inspect(ctx, "p", "k"); b != (store.Bucket{}) || !errors.Is(err, ctx.Err()) {
			r.Errorf("%+v, %v, want %v", b, err, ctx.Err())
		}
	}},
})

// inspecting omits the rules for a Store that is not an Inspector.
func inspecting(rules []rule) []rule {
	for i := range rules {
		test := rules[i].test
		rules[i].test = func(r *rig) {
			if _, ok := r.store.(store.Inspector); ok {
				test(r)
			}
		}
	}
	return rules
}

// inspect returns the contents of c's bucket.
func (r *rig) inspect(c store.Charge) store.Bucket {
	r.Helper()
	b, err := r.store.(store.Inspector).Inspect(context.Background(), c.Policy, c.Key)
	if err != nil {
		r.Fatal(err)
	}
	return b
}

// wantKept checks that c's bucket is kept under c's limit, with the contents that a peek finds.
func (r *rig) wantKept(c store.Charge) {
	r.Helper()
	b := r.inspect(c)
	if b.Limit != c.Limit || !b.Used() || b.Degraded {
		r.Fatalf("%+v, want one that is used under %+v", b, c.Limit)
	}
	r.want(b.State(c.Limit), r.peek(c))
}
