package lease

import (
	"math"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A visit is a charge during Take.
type visit struct {
	slot *slot
	hash uint64
	lot  *lot // its bucket's, nil if there is none

	paid  bool   // from lot
	owns  bool   // its slot
	stamp uint32 // of the slot that it owns, before the store is asked
	fate  *fate  // of its bucket, nil if there was no lot
	force *force // its limit there
	wish  int64  // tokens to be taken in all, with what lot has left
	rest  int64  // that lot, closed, has left of them
}

// own takes v's slot for a call of the store, if it is free for its bucket. A new lot may pay c after all.
func (v *visit) own(s *Store, c *store.Charge, state *store.State) {
	v.wish = c.Cost
	v.stamp = v.slot.stamp.Load()
	if v.stamp&resetsOpen != 0 || !v.slot.drawing.CompareAndSwap(false, true) {
		return
	}
	l := v.slot.lot.Load()
	now, hold := s.now(), s.hold.Microseconds()
	switch {
	case l == nil:
		v.lot = nil
	case !l.of(c):
		if l.fresh(now, hold) || !l.closeEmpty() {
			v.slot.drawing.Store(false)
			return
		}
		v.lot = nil
	case l.Limit == c.Limit && l.spend(s, c, now, state):
		v.slot.drawing.Store(false)
		v.lot, v.paid = l, true
		return
	default:
		v.lot = l
	}
	v.owns = true
}

// release frees the slot. It removes a lot that is out of use.
func (v *visit) release() {
	if v.owns {
		if v.lot != nil {
			v.slot.lot.CompareAndSwap(v.lot, nil)
		}
		v.owns = false
		v.slot.drawing.Store(false)
	}
}

// plan closes v's lot, whose slot v owns, and decides how many tokens to take. It returns the charge to send first,
// which gives back the tokens that cannot be spent with the call.
func (v *visit) plan(s *Store, c *store.Charge, now int64) (back store.Charge) {
	next := int64(0)
	if v.recent(s, now) {
		next = 2 * c.Cost
	}
	if l := v.lot; l != nil {
		next = 0
		fresh := l.Limit == c.Limit && l.fresh(now, s.hold.Microseconds())
		if fresh {
			next = max(l.next, 2*c.Cost)
		}
		if left := l.close(); left > 0 {
			v.rest = l.usable(left, now)
			if !fresh || v.rest >= c.Cost || l.instant && v.rest < left || c.Cost > c.Limit.Capacity/c.Limit.Unit {
				v.rest, next = 0, 0
				back = s.refund(l, left, now)
			} else {
				s.lost.Add(left - v.rest)
			}
		}
	}
	v.wish = max(c.Cost, min(next, s.most(c)))
	return back
}

// most returns how many tokens of c's bucket are held at most.
func (s *Store) most(c *store.Charge) int64 {
	return int64(s.fraction * float64(c.Limit.Capacity/c.Limit.Unit))
}

// A tag is one half of a bucket's hash and a time in units of 1,024 microseconds.
func (v *visit) tag(now int64) uint64 { return v.hash&^(1<<32-1) | uint64(uint32(now>>10)) }

// recent reports whether v's bucket was the last of its slot that was charged without a lease, within Hold.
func (v *visit) recent(s *Store, now int64) bool {
	seen := v.slot.seen.Load()
	hold := min(s.hold.Microseconds()>>10, math.MaxInt32)
	return (seen^v.hash)>>32 == 0 && uint32(now>>10)-uint32(seen) <= uint32(hold)
}

// note records that v's bucket was charged without a lease, or that it had too few tokens.
func (v *visit) note(s *Store, c *store.Charge, charged bool, now int64) {
	switch {
	case charged && s.most(c) > c.Cost:
		if tag := v.tag(now); v.slot.seen.Load() != tag {
			v.slot.seen.Store(tag)
		}
	case !charged && (v.slot.seen.Load()^v.hash)>>32 == 0:
		v.slot.seen.Store(0)
	}
}
