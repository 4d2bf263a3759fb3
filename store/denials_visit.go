package store

import "sync/atomic"

// A slot holds the line of one of the buckets that fall into it: that which was answered last.
//
// Its stamp changes whenever a line of one of them might cease to be true, and a line is in force while the
// stamp is the one it was made under. That is the stamp from before its call was sent. So nothing has to be
// removed, in whatever order replies arrive: a line that comes too late is not in force.
type slot struct {
	line  atomic.Pointer[line]
	stamp atomic.Uint64
}

// A stamp counts changes, and in its lower bits the calls under way that may add tokens: while there are
// any, no line is in force and none is made, nor of calls that were under way with them.
const (
	change = 1 << 24
	adding = change - 1
)

// A visit is a charge on its way through Take.
type visit struct {
	slot  *slot
	key   string // a short one
	line  *line  // its bucket's, nil if there is none
	stamp uint64 // that a line of this call is made under
	adds  bool   // the slot's stamp counts it
	keeps bool   // what the bucket answered is to be kept
}

// begin comes before the call is sent. A refund voids what is known at once: others may see it carried out
// before its reply is here. So does a charge under another limit than that of the line in force, which may
// refill the bucket at another rate.
func (v *visit) begin(c *Charge) {
	v.stamp = v.slot.stamp.Load()
	v.adds = c.Cost < 0 || v.line != nil && v.line.limit != c.Limit && v.line.stamp == v.stamp
	if v.adds {
		v.slot.stamp.Add(1)
	}
}

// end comes when s has answered, and reports v.keeps. A call that was refused changed nothing. Any other
// voids what was known before, also to those that are still under way: their buckets may be this one, under
// another limit or with more in it. A line that was in force until then is renewed.
func (v *visit) end(ok bool, err error) bool {
	switch {
	case v.adds:
		v.slot.stamp.Add(change - 1)
	case !ok && err == nil:
		// If the stamp has changed, the line would only be in the way.
		v.keeps = v.stamp&adding == 0 && v.slot.stamp.Load() == v.stamp
	default:
		renews := err == nil && v.line != nil && v.line.stamp == v.stamp
		v.stamp += change
		v.keeps = v.slot.stamp.Add(change) == v.stamp && renews
	}
	return v.keeps
}
