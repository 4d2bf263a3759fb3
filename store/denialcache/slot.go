package denialcache

import "github.com/go-tokenbucket/ratelimit/store"

// A slot holds the line of one of the buckets that fall into it: the one that was answered last.
type slot struct {
	line *line // nil if there is none

	// changes counts what may have made a line wrong: of this bucket, or of another one of the slot. A line is made only
	// if none happened while its call was under way. So replies may arrive in any order.
	changes int

	adding int         // calls under way that may add tokens; no line is made meanwhile
	under  store.Limit // of the latest charge that was sent, also if it was refused: its bucket is under it
}

// change drops the line, and those that calls under way would make.
func (s *slot) change() { s.changes, s.line = s.changes+1, nil }

// adds is for a call that is about to be sent, and adds tokens or ends a block. Others may see that before its reply is
// here.
func (s *slot) adds() {
	s.change()
	s.adding++
}

// added is for the same call after its reply.
func (s *slot) added() {
	s.change()
	s.adding--
}

// A visit is a charge during Take.
type visit struct {
	slot    *slot
	key     string // a short one
	line    *line  // its bucket's when the call was sent, nil if there was none
	changes int    // of the slot when the call was sent
	adds    bool   // the slot counts it as adding
}

// begin runs before the call is sent. A charge under another limit than that of the line may change the rate of the
// bucket, and counts as adding tokens.
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

// end runs after the store has answered, and reports whether the answer is to be kept. A refused call changed nothing,
// if no charge under another limit was sent since. Any other call may have changed its bucket: its answer takes the place
// of a line that was right until then.
//
// A peek makes no line where there is none. The bucket may be under another limit. The first charge has to put it under
// its limit, and a line would keep that charge from being sent.
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
