package fallback

import (
	"context"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// remember lets the secondary know what it needs for an outage, after the primary has answered a call: the buckets that
// are less than half full, blocked, removed or refunded. The others cost nothing.
//
// sent is when the call was sent, or 0 if secondary had blocked no bucket then. The answer does not know of blocks that came
// later.
func (f *Store) remember(ctx context.Context, charges []store.Charge, states []store.State, ok bool, sent int64) {
	for i := range charges {
		c, s := &charges[i], &states[i]
		switch {
		case s.Degraded:
		case isReset(*c), isStandby(*c):
			if ok {
				_, err := f.standIn(context.WithoutCancel(ctx), charges[i:i+1], make([]store.State, 1), true)
				f.note(ctx, err)
			}
		default:
			if low := s.Remaining*c.Limit.Unit < c.Limit.Capacity/2; low || f.mayBlock() {
				f.follow(context.WithoutCancel(ctx), c, s, low, sent)
			}
		}
	}
}

// follow blocks or unblocks the secondary's bucket of c as s says, the answer of the primary. It makes it no fuller than that
// if s is low.
func (f *Store) follow(ctx context.Context, c *store.Charge, s *store.State, low bool, sent int64) {
	held, share, err := f.look(ctx, c, f.used.dearest(c))
	if err != nil {
		f.note(ctx, err)
		return
	}
	f.followBlock(ctx, c, s, &held, sent)
	most := int64(float64(credits(c.Limit, s)) / float64(c.Limit.Capacity) * float64(share.Capacity))
	surplus := credits(share, &held) - most - share.Unit/spared
	if !low || surplus <= 0 {
		return
	}
	lower := store.Charge{Policy: c.Policy, Key: c.Key, Limit: share, Settles: true, Cost: up(surplus, share.Unit)}
	_, err = f.askSecondary(ctx, lower)
	f.note(ctx, err)
}

// spared is the part of a token that the secondary's bucket may hold in excess. The surplus is taken in whole tokens, rounded
// up: otherwise the rest of one would grow to a whole one with many short outages. But a reply takes its time, and the
// refill in that time must not cost a token.
const spared = 16

// credits returns at least what a bucket under l holds according to s, 0 in debt. If s is Blocked, it is what the bucket
// certainly holds, and the bucket is full when the block ends.
func credits(l store.Limit, s *store.State) int64 {
	reset := min(s.ResetAfter.Microseconds(), l.Fill())
	return max(0, l.Capacity-l.Refill*reset)
}

// sameBlock is by how much two reports of one block may differ, because the replies took different times.
const sameBlock = 10 * time.Millisecond

// followBlock blocks or unblocks the secondary's bucket of c, whose state is held, as the primary's, whose state is s.
func (f *Store) followBlock(ctx context.Context, c *store.Charge, s, held *store.State, sent int64) {
	if sent < f.blockChanged.Load() {
		return
	}
	b := store.Block{}
	switch {
	case s.Blocked && s.RetryAfter != store.Never && (!held.Blocked || (held.RetryAfter-s.RetryAfter).Abs() > sameBlock):
		b.For = min(s.RetryAfter, store.MaxBlock) // of a denial it may be the longer wait for the tokens
	case s.Blocked || !held.Blocked:
		return
	}
	f.note(ctx, f.setBlock(ctx, c.Policy, c.Key, b))
}

// noteBlock records that a bucket of the secondary is blocked for so long.
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
