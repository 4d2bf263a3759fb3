package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements [store.Inspector]. It counts held tokens as if they were given back, and gives back none.
func (s *Store) Inspect(ctx context.Context, policy, key string) (b store.Bucket, err error) {
	if err := store.ValidateName(policy, key); err != nil {
		return b, err
	}
	n := name{policy, keyname.Short(key)}
	leased, held := s.held(n)
	// If tokens are drawn or given back meanwhile, they would be counted twice or not at all. So look again.
	for range 3 {
		b, err = store.Inspect(ctx, s.store, n.policy, n.key)
		before := leased
		if leased, held = s.held(n); leased == before {
			break
		}
	}
	if err != nil || held == 0 || b.Degraded || b.Limit == (store.Limit{}) {
		return b, err
	}
	// Adding the held tokens before or after the refill of b.Age makes no difference.
	l := b.Limit
	b.Credits = l.Charge(b.Credits, l.Need(-held), 0, 1)
	now := l.Advance(&l, bucket.Bucket{Tokens: b.Credits}, b.Age.Microseconds())
	if b.Locked && now.Tokens >= l.Unit {
		b.Blocked, b.BlockedSince, b.Locked = 0, 0, false // a refund would end the lock
	}
	return b, nil
}

// held returns the lease of a bucket, and how many of its tokens could be given back.
func (s *Store) held(n name) (l *leased, tokens int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holdings[n]; h != nil && h.leased != nil {
		return h.leased, -h.leased.refund(h.leased.tokens, s.now()).Cost
	}
	return nil, 0
}
