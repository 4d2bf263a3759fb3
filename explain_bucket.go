package ratelimit

import (
	"cmp"
	"context"
	"errors"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// look fills the states of c as the Store would if it was charged, and returns the states now, by policy. With refused, the
// request is refused for another reason. If the Store has failed before, it is asked only if the request meets these policies.
func (x *explaining) look(ex *exchange, c *call, refused, met bool) (before map[string]*store.State, ok bool, err error) {
	if len(c.charges) == 0 {
		return nil, !refused, nil
	}
	if x.err != nil && !met {
		return nil, false, x.err
	}
	before = make(map[string]*store.State)
	c.put = func(ctx context.Context, c *call) (bool, error) {
		buckets, ok := make([]store.Bucket, len(c.charges)), !refused
		for i := range c.charges {
			charge := &c.charges[i]
			b, err := bucketOf(ctx, x.l.store, charge)
			if err != nil {
				return false, err
			}
			if b.Degraded {
				charge.Block = 0 // not every stand-in locks
				charge.Limit = cmp.Or(b.Limit, charge.Limit)
			}
			now := b.State(charge.Limit)
			buckets[i], before[charge.Policy] = b, &now
			c.states[i] = stateOf(b, charge, false)
			refuses := !c.states[i].Allowed || now.Blocked && charge.Cost == 0 // see shut
			ok = ok && (!refuses || charge.Shadow)
		}
		for i := range c.charges {
			if ok && c.states[i].Allowed {
				c.states[i] = stateOf(buckets[i], &c.charges[i], true)
			}
		}
		return ok, nil
	}
	ok, err = x.l.ask(ex, c)
	x.err = err
	return before, ok, err
}

// bucketOf returns the bucket of c. If s is no Inspector, it is what a look says of it.
func bucketOf(ctx context.Context, s store.Store, c *store.Charge) (store.Bucket, error) {
	b, err := store.Inspect(ctx, s, c.Policy, c.Key)
	if !errors.Is(err, errors.ErrUnsupported) {
		return b, err
	}
	look, states := []store.Charge{{Policy: c.Policy, Key: c.Key, Limit: c.Limit}}, make([]store.State, 1)
	if _, err := s.Take(ctx, look, states); err != nil {
		return b, err
	}
	return infer.Bucket(&look[0], &states[0]), nil
}

// stateOf returns the state that b answers to c. If charged is true, b is charged, which can pay.
func stateOf(b store.Bucket, c *store.Charge, charged bool) store.State {
	l, left := bucket.Limit(c.Limit), b.Blocked
	now := l.Advance(bucket.Bucket{Tokens: b.Credits, Unit: b.Limit.Unit}, b.Age.Microseconds()).Tokens
	if charged {
		need, _ := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed)
		now = l.Charge(now, need, 1)
		if c.Block > 0 && now < l.Unit {
			left = max(left, c.Block)
		}
	}
	s := c.State(now, charged)
	c.Shut(&s, left, charged)
	s.Degraded = b.Degraded
	return s
}
