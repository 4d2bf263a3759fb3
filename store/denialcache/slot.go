package denialcache

import "github.com/go-tokenbucket/ratelimit/store"

// Several buckets may share a slot. The slot holds the line of the bucket that was answered last.
type slot struct {
	line *line // nil if there is none

	// changes counts the changes that may have made a line wrong, of any bucket of the slot. A call makes a line only if
	// there was no change while the call was under way. So replies may arrive in any order.
	changes int

	adding int         // calls under way that may add tokens; no line is made meanwhile
	under  store.Limit // the limit of the latest charge that was sent; also a refused charge puts its bucket under its limit
}

// change drops the line. Calls that are under way make none.
func (s *slot) change() { s.changes, s.line = s.changes+1, nil }

// adds runs before a call is sent that adds tokens or ends a block. Other calls may see the change before the reply to this
// call is here.
func (s *slot) adds() {
	s.change()
	s.adding++
}

// added runs after the reply to the same call.
func (s *slot) added() {
	s.change()
	s.adding--
}

// A visit is a charge during Take.
type visit struct {
	slot    *slot
	key     string // a short one
	line    *line  // the line of the bucket when the call was sent, nil if there was none
	changes int    // the changes of the slot when the call was sent
	adds    bool   // the slot counts the call as adding
}

// begin runs before the call is sent. A charge counts as adding tokens if its limit is not the line's, because it may make
// the bucket refill faster.
func (v *visit) begin(c *store.Charge) {
	s := v.slot
	if s.line.of(c.Policy, v.key) {
		v.line = s.line
	}
	if v.adds = c.Cost < 0 || v.line != nil && v.line.Limit != c.Limit; v.adds {
		s.adds()
	}
	if c.Cost != 0 && s.under != c.Limit {
		s.change()
		s.under = c.Limit
	}
	v.changes = s.changes
}

// end runs after the store has answered, and reports whether the answer is to be kept. A refused call has changed nothing,
// unless a charge under another limit was sent meanwhile. Any other call may have changed its bucket. So its answer may only
// replace a line that was right until then.
//
// A look (a Cost of 0) makes no line if there is none. The bucket may be under another limit, until a charge puts it under
// its own. A line could keep that charge from being sent.
func (v *visit) end(c *store.Charge, ok bool, err error) (keep bool) {
	s := v.slot
	if v.adds {
		s.added()
		return false
	}
	unchanged := s.changes == v.changes && s.adding == 0
	if !ok && err == nil && (c.Cost == 0 || s.under == c.Limit) {
		return unchanged && (v.line != nil || c.Cost != 0)
	}
	s.change()
	return ok && err == nil && unchanged && v.line != nil
}
