package lease

import (
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A fate is what has happened to a bucket since its first tokens were drawn. Its lots share it.
type fate struct {
	reset atomic.Bool           // what was drawn before is void
	force atomic.Pointer[force] // the limit of the last charge of this process
}

// A force is the limit in force for a bucket, and the number of limits before it.
type force struct {
	limit  store.Limit
	number int
}

// use records that a charge under limit is about to be sent.
func (f *fate) use(limit store.Limit) *force {
	for {
		last := f.force.Load()
		if last != nil && last.limit == limit {
			return last
		}
		next := &force{limit: limit}
		if last != nil {
			next.number = last.number + 1
		}
		if f.force.CompareAndSwap(last, next) {
			return next
		}
	}
}

// use records that c, which is about to be sent, puts its bucket under its limit. It then finds the current lot.
func (v *visit) use(c *store.Charge) {
	if v.find(c); v.lot != nil && c.Cost != 0 && c.Cost != store.Reset {
		v.fate = v.lot.fate
		v.force = v.fate.use(c.Limit)
		v.find(c) // what is published later will not be spent
	}
}

// find finds the lot of c's bucket.
func (v *visit) find(c *store.Charge) {
	if v.lot = v.slot.lot.Load(); v.lot != nil && !v.lot.of(c) {
		v.lot = nil
	}
}

// useOwn is use for a visit that may own its slot. The lot of an owned slot is its own. A bucket that was reset
// gets a new fate.
func (v *visit) useOwn(s *Store, c *store.Charge) {
	switch {
	case v.paid:
	case !v.owns:
		v.use(c)
	case v.lot != nil:
		if v.lot.void() {
			s.lost.Add(v.lot.close())
			v.lot = &lot{Line: v.lot.Line, next: v.lot.next, fate: new(fate)}
			v.fate, v.force = v.lot.fate, v.lot.fate.use(c.Limit)
			v.slot.lot.Store(v.lot)
			return
		}
		v.fate = v.lot.fate
		v.force = v.fate.use(c.Limit)
	}
}

// announce puts a lot into v's slot, which v owns, if the bucket has none.
func (v *visit) announce(c *store.Charge, now int64) {
	if v.lot != nil {
		return
	}
	v.lot = announced(c, now)
	v.fate = v.lot.fate
	v.force = v.fate.use(c.Limit)
	v.slot.lot.Store(v.lot)
}

// inForce reports whether no charge under another limit was sent since v used its own limit.
func (v *visit) inForce() bool { return v.fate.force.Load() == v.force }

// refundUnder is refund if another limit than l's is in force. The bucket may have refilled under either limit, and
// may have been cut to either capacity. So l's tokens are worth at least what the bucket lacks at the faster rate
// and the lower capacity. If the limit changed more than once, that is not known, and the tokens are lost.
func (l *lot) refundUnder(f *force, tokens, now int64) store.Charge {
	back := store.Charge{Policy: l.Policy, Key: l.Key, Limit: f.limit}
	if f.number != l.number+1 {
		return back
	}
	unit, newUnit := float64(l.Limit.Unit), float64(f.limit.Unit)
	elapsed := float64(max(0, now-l.Sent))*1.001 + 2 // as in usable
	holds := float64(l.Most)/unit + elapsed*max(float64(l.Limit.Refill)/unit, float64(f.limit.Refill)/newUnit)
	lacks := min(float64(l.Limit.Capacity)/unit, float64(f.limit.Capacity)/newUnit) - holds
	// Rounded down by more than the rounding of the above.
	if usable := lacks - 1e-9*(1+holds); usable > 0 {
		back.Cost = -int64(min(float64(tokens), usable))
	}
	return back
}
