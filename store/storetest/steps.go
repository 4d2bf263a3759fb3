package storetest

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A bucket is one of the Store under test. Its Charge has the options of the charges in the next steps.
type bucket struct {
	*rig
	store.Charge
	last store.State // of the last charge
}

// A step does something to a bucket. The whole answer to each charge is compared with the model. A step says of it
// only what its rule is about.
type step func(b *bucket)

// on returns a test that does steps to a bucket of burst tokens, of which one comes in each per.
func on(per time.Duration, burst int64, steps ...step) func(*rig) {
	return func(r *rig) { r.do("k", r.limit(1, per, burst), steps...) }
}

// each returns a test that does steps to a new bucket for each use.
func each(per time.Duration, burst int64, uses map[string]step, steps func(use step) step) func(*rig) {
	return func(r *rig) {
		for key, use := range uses {
			r.do(key, r.limit(1, per, burst), steps(use))
		}
	}
}

// onSlow returns a test that does steps to a bucket of each limit that is slow to fill.
func onSlow(steps func(l store.Limit) step) func(*rig) {
	return func(r *rig) {
		for i, l := range slowToFill(r) {
			r.do(string(rune('a'+i)), l, steps(l))
		}
	}
}

func (r *rig) do(key string, l store.Limit, steps ...step) {
	all(steps...)(&bucket{rig: r, Charge: store.Charge{Policy: "p", Key: key, Limit: l}})
}

func all(steps ...step) step {
	return func(b *bucket) {
		for _, s := range steps {
			s(b)
		}
	}
}

func times(n int, steps ...step) step {
	return func(b *bucket) {
		for range n {
			all(steps...)(b)
		}
	}
}

func (b *bucket) name() name { return name{b.Policy, b.Key} }

// charge makes a charge with options, and checks what the rule says of the answer. left is how many tokens there are
// after it.
func charge(cost, left int64, allowed bool, options func(c *store.Charge)) step {
	return func(b *bucket) {
		c := b.Charge
		c.Cost = cost
		options(&c)
		ok, states := b.take(c)
		b.last = states[0]
		if ok != (allowed || c.Shadow) || b.last.Allowed != allowed || b.last.Remaining != left {
			b.Fatalf("%+v: ok %t, %+v, want it allowed: %t, with %d left", c, ok, b.last, allowed, left)
		}
	}
}

func allow(cost, left int64) step { return charge(cost, left, true, func(*store.Charge) {}) }
func deny(cost, left int64) step  { return charge(cost, left, false, func(*store.Charge) {}) }
func owe(cost, left int64) step {
	return charge(cost, left, true, func(c *store.Charge) { c.Owed = true })
}

// try makes a charge, of which only the model knows the answer.
func try(cost int64) step {
	return func(b *bucket) {
		c := b.Charge
		c.Cost = cost
		b.take(c)
	}
}

// plain makes a charge without the options of the bucket.
func plain(cost, left int64) step {
	return charge(cost, left, true, func(c *store.Charge) {
		*c = store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: cost}
	})
}

func settle(cost, left int64) step {
	return charge(cost, left, true, func(c *store.Charge) {
		*c = store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: cost, Settles: true}
	})
}

func peek(left int64) step { return plain(0, left) }

// reset removes the bucket, which is full then.
func reset(b *bucket) { plain(store.Reset, burst(b.Limit))(b) }

// with sets options of the next charges.
func with(options func(c *store.Charge)) step { return func(b *bucket) { options(&b.Charge) } }

func shadow(yes bool) step         { return with(func(c *store.Charge) { c.Shadow = yes }) }
func maxWait(d time.Duration) step { return with(func(c *store.Charge) { c.MaxWait = d }) }
func locking(d time.Duration) step { return with(func(c *store.Charge) { c.Lock = d }) }
func by(key string) step           { return with(func(c *store.Charge) { c.Key = key }) }
func wait(d time.Duration) step    { return func(b *bucket) { b.rig.wait(d) } }

// waitRetry waits until less than the last RetryAfter is left.
func waitRetry(less time.Duration) step {
	return func(b *bucket) { b.rig.wait(b.last.RetryAfter - less) }
}

// shift moves the clock, also backwards, and lets no Store forget.
func shift(d time.Duration) step { return func(b *bucket) { b.nanos.Add(int64(d)) } }

// limit changes the limit of the next charges to rate tokens in each per.
func limit(rate int64, per time.Duration, burst int64) step {
	return func(b *bucket) { b.Limit = b.rig.limit(rate, per, burst) }
}

// says checks the last state.
func says(want store.State) step {
	return func(b *bucket) {
		if b.last != want {
			b.Fatalf("the state is\n\t%+v, want\n\t%+v", b.last, want)
		}
	}
}

// block blocks the bucket for d, or unblocks it if d is 0.
func block(d time.Duration) step {
	return func(b *bucket) { b.rig.block(b.name(), store.Block{For: d}) }
}

// blocked checks that the bucket is blocked for left, or not at all.
func blocked(left time.Duration, lock bool) step {
	return func(b *bucket) {
		_, states := b.take(store.Charge{Policy: b.Policy, Key: b.Key, Limit: b.Limit})
		s, kept := states[0], store.Bucket{Locked: lock}
		if is[store.Inspector](b.rig) {
			kept = b.inspect(b.name())
		}
		if s.Blocked != (left > 0) || s.RetryAfter != left || left > 0 && s.Remaining != 0 || kept.Locked != lock {
			b.Fatalf("%+v, want it blocked for %v, by a lock: %t", s, left, lock)
		}
	}
}

// blocking does steps if the Store is a Blocker.
func blocking(steps ...step) step {
	return func(b *bucket) {
		if is[store.Blocker](b.rig) {
			all(steps...)(b)
		}
	}
}
