package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements [store.Inspector]. The Bucket has the tokens that are held here, too: it is what it would be if they
// were given back. None is.
func (s *Store) Inspect(ctx context.Context, policy, key string) (b store.Bucket, err error) {
	if err := store.ValidateName(policy, key); err != nil {
		return b, err
	}
	c := store.Charge{Policy: policy, Key: shortkey.Of(key)}
	v := s.look(&c)
	// The tokens may be drawn or given back meanwhile, and would then be counted twice or not at all.
	for range 3 {
		b, err = store.Inspect(ctx, s.store, c.Policy, c.Key)
		before := v.lot
		if v.find(&c); v.lot == before {
			break
		}
	}
	held := v.held(s)
	if err != nil || held == 0 || b.Degraded || b.Limit == (store.Limit{}) {
		return b, err
	}
	// Before or after the refill of its Age makes no difference.
	l := bucket.Limit(b.Limit)
	b.Credits = l.Charge(b.Credits, l.Need(-held), 1)
	now := l.Advance(bucket.Bucket{Tokens: b.Credits, Unit: l.Unit}, b.Age.Microseconds())
	if b.Locked && now.Tokens >= l.Unit {
		b.Blocked, b.Locked = 0, false // as by a refund
	}
	return b, nil
}

// held returns how many tokens of v's lot could be given back.
func (v *visit) held(s *Store) int64 {
	if v.lot == nil || v.lot.void() {
		return 0
	}
	left := v.lot.unspent.Load()
	if left <= 0 {
		return 0
	}
	return -v.lot.refund(left, s.now()).Cost
}
