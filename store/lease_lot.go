package store

import (
	"math"
	"sync/atomic"
)

// A lot is what is left of the tokens that one call took of a bucket in the store.
//
// Its line is what that bucket held after the call. With the tokens of the lot it would hold as much more, but
// never more than its capacity, so that they lose their worth as it refills: what is spent or given back is at
// most what the bucket lacks. That holds for the lots of all replicas together. Each is taken from a bucket
// that lacks what the earlier ones hold, and so lacks what they and this one hold; and all that a bucket lacks
// shrinks alike.
type lot struct {
	line
	next    int64 // tokens that the next call is to take
	instant bool  // the clock stood still during the call, so that all is known exactly

	fate   *fate // of the bucket
	number int   // of its limit in fate, when the lot was drawn

	_       [64]byte // not on a cache line with what every call reads
	unspent atomic.Int64
	_       [56]byte
}

// closed is what unspent is of a lot that is out of use. Nobody brings it up to a cost.
const closed = math.MinInt64

// newLot returns the lot that c, of which the store said s, took; c cost more by that than the call it was for. Its
// tokens are to be spent once it is published. It is nil if no bucket can have said so.
func newLot(v *leaseVisit, c *Charge, s *State, sent, received int64) *lot {
	l := &lot{
		line:    line{policy: v.lot.policy, key: v.lot.key, limit: c.Limit, sent: sent, received: received},
		next:    2 * v.wish,
		instant: sent == received,
		fate:    v.fate,
		number:  v.force.number,
	}
	if l.least, l.most = c.credits(s); l.least > l.most || received < sent {
		return nil
	}
	return l
}

// announced returns a lot without tokens for a bucket whose first tokens are about to be drawn, so that calls under
// another limit find it meanwhile.
func announced(c *Charge, now int64) *lot {
	name := c.Policy + c.Key // a copy: they may be parts of something large
	return &lot{
		line: line{policy: name[:len(c.Policy)], key: name[len(c.Policy):], limit: c.Limit, sent: now, received: now},
		fate: new(fate),
	}
}

// spent returns a lot without tokens, which remembers how many to take next.
func (l *lot) spent(next, now int64) *lot {
	s := &lot{line: l.line, next: next, fate: l.fate, number: l.number}
	s.sent, s.received = now, now
	return s
}

func (l *lot) of(c *Charge) bool { return l.key == c.Key && l.policy == c.Policy }

// fresh reports whether l may be used at now.
func (l *lot) fresh(now, hold int64) bool { return now >= l.received && now-l.sent <= hold }

// spend pays c from l, and fills s, if l has the tokens and can tell what is to be told.
func (l *lot) spend(c *Charge, now, hold int64, s *State) bool {
	for {
		unspent := l.unspent.Load()
		if unspent < c.Cost || !l.fresh(now, hold) {
			return false
		}
		usable := l.usable(unspent, now)
		if usable < c.Cost || l.instant && usable < unspent {
			return false
		}
		left := usable - c.Cost
		if !l.tell(c, left, now, s) {
			return false
		}
		if l.unspent.CompareAndSwap(unspent, left) {
			return true
		}
	}
}

// usable returns how many of unspent tokens may be spent at now: those that the bucket certainly lacks. It
// answered when the call was sent or later, by a clock that runs faster by up to 0.1 %, and each of the clocks
// was read to the microsecond only.
func (l *lot) usable(unspent, now int64) int64 {
	elapsed := max(0, now-l.sent)
	lacks := l.limit.Capacity - l.at(l.most, elapsed+elapsed/1000+2)
	if unspent*l.limit.Unit <= lacks {
		return unspent
	}
	return lacks / l.limit.Unit
}

// tell fills s with what c is told that left unspent tokens behind. It reports whether that is certain, as far
// as it could be: after a call that took time, times are open by that anyway, and rounding is nothing beside
// it.
func (l *lot) tell(c *Charge, left, now int64, s *State) bool {
	elapsed := now - l.received
	*s = l.state(c, l.at(l.least, elapsed), left)
	return !l.instant || l.least == l.most || *s == l.state(c, l.at(l.most, elapsed), left)
}

func (l *lot) state(c *Charge, credits, left int64) State {
	return c.State(min(l.limit.Capacity, credits+left*l.limit.Unit), true)
}

// undo puts tokens back that were not spent after all, and reports whether l was still in use.
func (l *lot) undo(tokens int64) bool {
	for {
		unspent := l.unspent.Load()
		if unspent < 0 {
			return false
		}
		if l.unspent.CompareAndSwap(unspent, unspent+tokens) {
			return true
		}
	}
}

// close takes l out of use and returns what was unspent. Who closes it first gets it, and others nothing.
func (l *lot) close() int64 { return max(0, l.unspent.Swap(closed)) }

// closeEmpty takes l out of use if nothing is unspent, and reports whether it is.
func (l *lot) closeEmpty() bool { return l.unspent.CompareAndSwap(0, closed) || l.unspent.Load() < 0 }

// refund returns the charge that gives tokens back at now, as far as they are usable, under the limit that is in force
// for the bucket by now. Its Cost is 0 if nothing is to be given back.
func (l *lot) refund(tokens, now int64) Charge {
	if f := l.fate.force.Load(); f.number != l.number {
		return l.refundUnder(f, tokens, now)
	}
	usable := l.usable(tokens, now)
	if l.instant && usable < tokens {
		// The last one may be worth a part of a token only, of which the store takes as much as it has room
		// for.
		lacks := l.limit.Capacity - l.at(l.least, now-l.received)
		usable = min(tokens, (lacks+l.limit.Unit-1)/l.limit.Unit)
	}
	return Charge{Policy: l.policy, Key: l.key, Limit: l.limit, Cost: -usable}
}
