package fallback

import (
	"context"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// remember prepares the secondary for an outage, after the primary has answered a call. It changes the secondary's bucket
// if the primary's is less than half full, or was blocked, removed or refunded. Other buckets cost nothing.
//
// sent is when the call was sent, or 0 if the secondary had blocked no bucket then. The answer does not show later blocks.
func (f *Store) remember(ctx context.Context, charges []store.Charge, states []store.State, ok bool, sent int64) {
	for i := range charges {
		c, s := &charges[i], &states[i]
		switch {
		case s.Degraded:
		case isReset(*c), isStandby(*c):
			if ok {
				_, err := f.standIn(context.WithoutCancel(ctx), charges[i:i+1], make([]store.State, 1), true)
				f.logSecondary(ctx, err)
			}
		default:
			// Slots are no tokens: those that are held in an outage are held beside those of the primary.
			low := s.Remaining*c.Limit.Unit < c.Limit.Capacity/2 && !c.Limit.IsConcurrency()
			if low || s.Blocked || f.mayBlock() {
				f.follow(context.WithoutCancel(ctx), c, s, low, sent)
			}
		}
	}
}

// follow changes the secondary's bucket of c after the primary has answered s. It blocks or unblocks the bucket as in s. If
// low is true, it also lowers the bucket to the part of the burst that s has left. For example, if s has 5 of 20 tokens
// left, the secondary's bucket with a share of 8 keeps at most 2.
func (f *Store) follow(ctx context.Context, c *store.Charge, s *store.State, low bool, sent int64) {
	held, share, err := f.look(ctx, c, f.used.maxCost(c))
	if err != nil {
		f.logSecondary(ctx, err)
		return
	}
	f.followBlock(ctx, c, s, &held, sent)
	most := int64(float64(credits(c.Limit, s)) / float64(c.Limit.Capacity) * float64(share.Capacity))
	surplus := credits(share, &held) - most - share.Unit/excessDivisor
	if !low || surplus <= 0 {
		return
	}
	lower := store.Charge{Policy: c.Policy, Key: c.Key, Limit: share, Settles: true, Cost: wholeTokens(surplus, share.Unit)}
	_, err = f.callSecondary(ctx, lower)
	f.logSecondary(ctx, err)
}

// The secondary's bucket may hold 1/excessDivisor of a token in excess. A larger surplus is taken in whole tokens, rounded up.
// Rounded down, the rests would grow to a whole token in many short outages. Without the excess, the refill during a reply
// would cost a token.
const excessDivisor = 16

// credits returns the credits that a bucket under l holds according to s, or slightly more. It returns 0 in debt. If s is
// Blocked, it returns the credits that the bucket certainly holds.
func credits(l store.Limit, s *store.State) int64 {
	switch {
	case l.IsQuota() && s.Blocked:
		return l.Capacity // the block hides how many there are
	case l.IsQuota():
		return s.Remaining
	}
	reset := min(s.ResetAfter.Microseconds(), l.Fill())
	return max(0, l.Capacity-l.Refill*reset)
}

// sameBlock is by how much the end of a block may differ in two replies, because these took different times.
const sameBlock = 10 * time.Millisecond

// followBlock blocks or unblocks the secondary's bucket of c like the primary's bucket. held and s are their states.
func (f *Store) followBlock(ctx context.Context, c *store.Charge, s, held *store.State, sent int64) {
	if sent < f.blockChanged.Load() {
		return
	}
	b := store.Block{}
	switch {
	case s.Blocked && s.RetryAfter != store.Never && (!held.Blocked || (held.RetryAfter-s.RetryAfter).Abs() > sameBlock):
		b.For = min(s.RetryAfter, store.MaxBlock) // after a denial, RetryAfter may be the longer wait for the tokens
	case s.Blocked || !held.Blocked:
		return
	}
	f.logSecondary(ctx, f.setBlock(ctx, c.Policy, c.Key, b))
}

// noteBlock records that a bucket of the secondary is blocked for another left.
func (f *Store) noteBlock(left time.Duration) {
	until := f.now() + bucket.Microseconds(left)
	for last := f.blocked.Load(); until > last && !f.blocked.CompareAndSwap(last, until); last = f.blocked.Load() {
	}
}

// mayBlock reports whether the secondary may have blocked a bucket.
func (f *Store) mayBlock() bool {
	until := f.blocked.Load()
	return until > 0 && f.now() < until
}
