package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/internal/readonly"
	"github.com/go-tokenbucket/ratelimit/store"
)

// inspectWith returns what the bucket of c would hold if its held tokens were given back. It gives none back. If the store
// is unavailable, and the held tokens would pay asked, it returns the bucket as far as it is known here.
func (s *Store) inspectWith(ctx context.Context, c, asked *store.Charge) (b store.Bucket, err error) {
	v := s.look(c)
	// The tokens may be drawn or given back meanwhile, and would then be counted twice or not at all.
	for range 3 {
		b, err = store.Inspect(ctx, s.store, c.Policy, c.Key)
		before := v.lot
		if v.find(c); v.lot == before {
			break
		}
	}
	if err != nil || b.Degraded {
		if own, pays := v.pays(s, asked); pays {
			return own, nil
		}
	}
	if err != nil || b.Limit == (store.Limit{}) {
		return b, err
	}
	// Before or after the refill of its Age makes no difference.
	l := bucket.Limit(b.Limit)
	b.Credits = l.Charge(b.Credits, l.Need(-v.held(s, asked)), 1)
	kept := l.Advance(bucket.Bucket{Tokens: b.Credits, Unit: l.Unit}, b.Age.Microseconds())
	if b.Locked && kept.Tokens >= l.Unit {
		b.Blocked, b.Locked = 0, false // as by a refund
	}
	return b, nil
}

// pays returns the bucket of v as its lot knows it, and whether the lot would pay c.
func (v *visit) pays(s *Store, c *store.Charge) (b store.Bucket, pays bool) {
	l, now := v.lot, s.now()
	if l == nil || !simple(c) || l.Limit != c.Limit || !l.fresh(now, s.hold.Microseconds()) {
		return b, false
	}
	unspent := l.unspent.Load()
	usable := l.usable(max(0, unspent), now)
	if usable < c.Cost || l.instant && usable < unspent {
		return b, false
	}
	credits := l.At(l.Least, now-l.Received) + usable*l.Limit.Unit
	return store.Bucket{Limit: l.Limit, Credits: min(l.Limit.Capacity, credits)}, true
}

// lookWith is Take for looks at buckets of a store that is no Inspector: with the held tokens, of which it gives none back.
func (s *Store) lookWith(ctx context.Context, visits []visit, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := s.store.Take(ctx, charges, states)
	if !ok || err != nil {
		return ok, err
	}
	for i := range visits {
		c, state := &charges[i], &states[i]
		if n := visits[i].held(s, readonly.For(ctx)); n > 0 && !state.Blocked && !state.Degraded {
			l := bucket.Limit(c.Limit)
			least, _ := infer.Credits(c, state)
			c.Fill(state, l.Charge(least, l.Need(-n), 1), true)
		}
	}
	return true, nil
}

// held returns how many tokens of v's lot would go back before asked is charged.
func (v *visit) held(s *Store, asked *store.Charge) int64 {
	if v.lot == nil || v.lot.void() {
		return 0
	}
	left := v.lot.unspent.Load()
	if left <= 0 {
		return 0
	}
	f := v.lot.fate.force.Load()
	if asked.Cost != 0 && asked.Cost != store.Reset && asked.Limit != f.limit {
		f = &force{limit: asked.Limit, number: f.number + 1}
	}
	return -v.lot.refundIn(f, left, s.now()).Cost
}
