package lease

import (
	"math"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A lot is the rest of the tokens that one call took from a bucket in the store.
//
// Its Line is what that bucket held after the call. With the tokens of the lot it would hold more, but never more
// than its capacity. So the tokens lose their worth while the bucket refills: at most what the bucket lacks is
// spent or given back. That holds for the lots of all replicas together. Each is taken from a bucket that lacks
// what the earlier ones hold. So the bucket lacks what all of them hold, and everything that it lacks shrinks
// alike.
type lot struct {
	infer.Line
	next    int64 // tokens that the next call is to take
	instant bool  // the clock stood still during the call, so that all is known exactly

	fate   *fate // of the bucket
	number int   // of its limit in fate, when the lot was drawn

	_       [64]byte // not on a cache line with what every call reads
	unspent atomic.Int64
	_       [56]byte
}

// closed is the unspent of a lot that is out of use. No undo can raise it to a cost.
const closed = math.MinInt64

// newLot returns the lot that c took. The answer of the store was s. c cost more than the call needed, by the
// tokens of the lot. They can be spent after it is published. newLot returns nil if no bucket can have given this
// answer.
func newLot(v *visit, c *store.Charge, s *store.State, sent, received int64) *lot {
	l := &lot{
		Line:    infer.Line{Policy: v.lot.Policy, Key: v.lot.Key, Limit: c.Limit, Sent: sent, Received: received},
		next:    2 * v.wish,
		instant: sent == received,
		fate:    v.fate,
		number:  v.force.number,
	}
	if l.Least, l.Most = infer.Credits(c, s); l.Least > l.Most || received < sent {
		return nil
	}
	return l
}

// announced returns a lot without tokens, for a bucket whose first tokens are about to be drawn. Calls under
// another limit find it meanwhile.
func announced(c *store.Charge, now int64) *lot {
	name := c.Policy + c.Key // a copy: they may be parts of something large
	return &lot{
		Line: infer.Line{Policy: name[:len(c.Policy)], Key: name[len(c.Policy):], Limit: c.Limit, Sent: now, Received: now},
		fate: new(fate),
	}
}

// spent returns a lot without tokens that remembers how many to take next.
func (l *lot) spent(next, now int64) *lot {
	s := &lot{Line: l.Line, next: next, fate: l.fate, number: l.number}
	s.Sent, s.Received = now, now
	return s
}

func (l *lot) of(c *store.Charge) bool { return l.Key == c.Key && l.Policy == c.Policy }

// fresh reports whether l may be used at now.
func (l *lot) fresh(now, hold int64) bool { return now >= l.Received && now-l.Sent <= hold }

// spend pays c from l and fills s. It reports whether l has the tokens and is certain of the state.
func (l *lot) spend(of *Store, c *store.Charge, now int64, s *store.State) bool {
	for {
		unspent := l.unspent.Load()
		if unspent < c.Cost || !l.fresh(now, of.hold.Microseconds()) {
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
			if usable < unspent {
				of.lost.Add(unspent - usable)
			}
			return true
		}
	}
}

// usable returns how many of unspent tokens may be spent at now: those that the bucket certainly lacks. The bucket
// answered when the call was sent or later. Its clock may run faster by up to 0.1 %, and both clocks were rounded
// to a microsecond.
func (l *lot) usable(unspent, now int64) int64 {
	elapsed := max(0, now-l.Sent)
	lacks := l.Limit.Capacity - l.At(l.Most, elapsed+elapsed/1000+2)
	if unspent*l.Limit.Unit <= lacks {
		return unspent
	}
	return lacks / l.Limit.Unit
}

// tell fills s with the state for c if it leaves that many tokens unspent. It reports whether the state is as
// certain as possible. After a call that took time, times are uncertain by that anyway, and rounding does not
// matter.
func (l *lot) tell(c *store.Charge, left, now int64, s *store.State) bool {
	elapsed := now - l.Received
	*s = l.state(c, l.At(l.Least, elapsed), left)
	return !l.instant || l.Least == l.Most || *s == l.state(c, l.At(l.Most, elapsed), left)
}

func (l *lot) state(c *store.Charge, credits, left int64) store.State {
	return c.State(min(l.Limit.Capacity, credits+left*l.Limit.Unit), true)
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

// close takes l out of use and returns the unspent tokens. Only the first caller gets them, all others get 0.
func (l *lot) close() int64 { return max(0, l.unspent.Swap(closed)) }

// closeEmpty takes l out of use if it has no unspent tokens, and reports whether it has none.
func (l *lot) closeEmpty() bool { return l.unspent.CompareAndSwap(0, closed) || l.unspent.Load() < 0 }

// refund returns the charge that gives tokens back at now, under the limit in force for the bucket. Only usable
// tokens are given back. Its Cost is 0 if there are none.
func (l *lot) refund(tokens, now int64) store.Charge {
	return l.refundIn(l.fate.force.Load(), tokens, now)
}

// refundIn is refund while f is in force.
func (l *lot) refundIn(f *force, tokens, now int64) store.Charge {
	if f.number != l.number {
		return l.refundUnder(f, tokens, now)
	}
	usable := l.usable(tokens, now)
	if l.instant && usable < tokens {
		// The last one may be worth a part of a token only, of which the store takes as much as it has room
		// for.
		lacks := l.Limit.Capacity - l.At(l.Least, now-l.Received)
		usable = min(tokens, (lacks+l.Limit.Unit-1)/l.Limit.Unit)
	}
	return store.Charge{Policy: l.Policy, Key: l.Key, Limit: l.Limit, Cost: -usable}
}
