package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

// The stamp of a slot counts resets of its buckets, and in its lower bits the resets that are running. Tokens that
// were taken from a bucket before a reset are neither spent nor given back after it, because the bucket is full
// without them. So no lot is made of tokens that were drawn while the stamp changed, even if another bucket of the
// slot was reset.
//
// The stamp counts charges that block or unblock a bucket, too: tokens from before are not spent after them. Locks are
// not counted, because no charge of a policy with locks is leased.
const (
	resetDone  = 1 << 12
	resetsOpen = resetDone - 1
)

// void reports whether the bucket was reset since l was drawn. The rest of l must not go back to it then.
func (l *lot) void() bool { return l.fate.reset.Load() }

// drawn reports whether no reset has begun since v began its draw.
func (v *visit) drawn() bool { return v.slot.stamp.Load() == v.stamp }

// publish puts l into its slot. Others may spend its tokens unless a reset, or a call under another limit, has
// begun since the draw. If one begins later, it finds l there and closes it. publish reports whether others may
// spend them.
func (v *visit) publish(l *lot, tokens int64) bool {
	v.slot.lot.Store(l)
	return v.drawn() && v.inForce() && l.unspent.CompareAndSwap(0, tokens)
}

// pass gives back the held tokens of the buckets of a call, and sends the call to the store.
func (s *Store) pass(ctx context.Context, visits []visit, charges []store.Charge, states []store.State, now int64) (bool, error) {
	for i := range visits {
		v, c := &visits[i], &charges[i]
		if !stops(c) {
			v.use(c)
			continue
		}
		v.slot.stamp.Add(1)
		defer v.slot.stamp.Add(resetDone - 1)
		if v.find(c); v.lot != nil && c.Cost == store.Reset {
			v.lot.fate.reset.Store(true)
		}
	}
	s.yield(ctx, visits, charges, now)
	return s.store.Take(ctx, charges, states)
}

// stops reports whether c resets, blocks or unblocks its bucket, so that no token that was taken before may be spent.
func stops(c *store.Charge) bool { return c.Cost == store.Reset || c.Cost == 0 && c.Block != 0 }
