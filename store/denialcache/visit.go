package denialcache

import (
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A slot holds the line of one of the buckets that fall into it: the one that was answered last.
//
// Its stamp changes whenever the line of one of them might become wrong. A line is in force while the stamp is the
// one it was made under, which is the stamp from before its call was sent. So no line has to be removed, in
// whatever order replies arrive: a line that comes too late is not in force.
type slot struct {
	line  atomic.Pointer[line]
	stamp atomic.Uint64

	// under is a hash of the limit of the latest charge that was sent for its buckets, or 0 if there was none. Each
	// charge may put its bucket under its limit, even if the call is refused.
	under atomic.Uint64
}

// A stamp counts changes, and in its lower bits the running calls that may add tokens. While there are any, no line
// is in force and none is made, nor by calls that ran at the same time.
const (
	change = 1 << 24
	adding = change - 1
)

// A visit is a charge during Take.
type visit struct {
	slot  *slot
	key   string // a short one
	line  *line  // its bucket's, nil if there is none
	under uint64 // a hash of its limit, 0 for a peek, which puts no bucket under another
	stamp uint64 // that a line of this call is made under
	adds  bool   // tokens, or changes the bucket in another way: the slot's stamp counts it
	keeps bool   // what the bucket answered is to be kept
}

// begin runs before the call is sent. A refund immediately invalidates the line, because others may see the refund
// before its reply is here. So does a charge that blocks or unblocks the bucket, and one under another limit than that
// of the line in force, because it may change the rate of the bucket.
func (v *visit) begin(c *store.Charge) {
	v.stamp = v.slot.stamp.Load()
	v.adds = c.Cost < 0 || c.Cost == 0 && c.Block != 0 || v.inForce() && v.line.Limit != c.Limit
	if v.adds {
		v.slot.stamp.Add(1)
	}
	if c.Cost == 0 {
		return
	}
	v.under = hashOf(c.Limit)
	if v.slot.under.Load() != v.under && !v.slot.under.CompareAndSwap(0, v.under) {
		// Calls that began before this one invalidate no line that is made after it. They see under, and invalidate
		// lines that are made before. The two changes of the stamp are for calls that see under change in between.
		v.slot.stamp.Add(change)
		v.slot.under.Store(v.under)
		v.stamp = v.slot.stamp.Add(change)
	}
}

// inForce reports whether v's line was in force when the call was sent.
func (v *visit) inForce() bool { return v.line != nil && v.line.stamp == v.stamp }

// end runs after the store has answered, and reports v.keeps. A refused call changed nothing, if no charge under
// another limit was sent since. Any other call invalidates earlier lines, also those of running calls: their
// buckets may be this one, with another limit or with more tokens. A line that was in force until then is renewed.
//
// A peek only renews a line and makes none. The bucket may be under another limit. The first charge has to put it
// under its limit, and a line would keep that charge from being sent.
func (v *visit) end(ok bool, err error) bool {
	switch {
	case v.adds:
		v.slot.stamp.Add(change - 1)
	case !ok && err == nil && (v.under == 0 || v.slot.under.Load() == v.under):
		// If the stamp has changed, the line would only be in the way.
		v.keeps = v.stamp&adding == 0 && v.slot.stamp.Load() == v.stamp && (v.under != 0 || v.inForce())
	default:
		renews := ok && err == nil && v.inForce()
		v.stamp += change
		v.keeps = v.slot.stamp.Add(change) == v.stamp && renews
	}
	return v.keeps
}

// hashOf returns a hash of l that is never 0.
func hashOf(l store.Limit) uint64 {
	return uint64(l.Unit)*0x9e3779b97f4a7c15 ^ uint64(l.Capacity)*0xbf58476d1ce4e5b9 ^ uint64(l.Refill)*0x94d049bb133111eb | 1
}
