package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements [store.Inspector]. The Bucket has the tokens that are held here, too: it is what it would be if they
// were given back. None is.
func (s *Store) Inspect(ctx context.Context, policy, key string) (b store.Bucket, err error) {
	if err := store.ValidateName(policy, key); err != nil {
		return b, err
	}
	n := name{policy, keyname.Short(key)}
	lot, held := s.held(n)
	// The tokens may be drawn or given back meanwhile, and would then be counted twice or not at all.
	for range 3 {
		b, err = store.Inspect(ctx, s.store, n.policy, n.key)
		before := lot
		if lot, held = s.held(n); lot == before {
			break
		}
	}
	if err != nil || held == 0 || b.Degraded || b.Limit == (store.Limit{}) {
		return b, err
	}
	// Before or after the refill of its Age makes no difference.
	l := b.Limit
	b.Credits = l.Charge(b.Credits, l.Need(-held), 0, 1)
	now := l.Advance(bucket.Bucket{Tokens: b.Credits, Unit: l.Unit}, b.Age.Microseconds())
	if b.Locked && now.Tokens >= l.Unit {
		b.Blocked, b.BlockedSince, b.Locked = 0, 0, false // as by a refund
	}
	return b, nil
}

// held returns the leased tokens of a bucket, and how many of them could be given back.
func (s *Store) held(n name) (l *leased, tokens int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdings[n]; h != nil && h.leased != nil {
		return h.leased, -h.leased.refund(h.leased.tokens, s.now()).Cost
	}
	return nil, 0
}
