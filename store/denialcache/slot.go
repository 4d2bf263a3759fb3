package denialcache

import "github.com/go-tokenbucket/ratelimit/store"

// Several buckets may share a slot. The slot holds the denial of the bucket that was answered last.
type slot struct {
	denial *denial // nil if there is none

	// changes counts the changes that may have made a denial wrong, of any bucket of the slot. A call makes a denial only if
	// there was no change while the call was under way. So replies may arrive in any order.
	changes int

	adding int         // calls under way that may add tokens; no denial is made meanwhile
	under  store.Limit // the limit of the latest charge that was sent; also a refused charge puts its bucket under its limit
}

// change drops the denial. Calls that are under way make none.
func (s *slot) change() { s.changes, s.denial = s.changes+1, nil }

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

// A lookup is a charge during Take.
type lookup struct {
	slot    *slot
	key     string  // a short one
	denial  *denial // that of the bucket when the call was sent, nil if there was none
	changes int     // the changes of the slot when the call was sent
	adds    bool    // the slot counts the call as adding
}

// begin runs before the call is sent. A charge counts as adding tokens if its limit is not the denial's, because it may make
// the bucket refill faster.
func (l *lookup) begin(c *store.Charge) {
	s := l.slot
	if s.denial.of(c.Policy, l.key) {
		l.denial = s.denial
	}
	if l.adds = c.Cost < 0 || l.denial != nil && l.denial.Limit != c.Limit; l.adds {
		s.adds()
	}
	if c.Cost != 0 && s.under != c.Limit {
		s.change()
		s.under = c.Limit
	}
	l.changes = s.changes
}

// end runs after the store has answered, and reports whether the answer is to be kept. A refused call has changed nothing,
// unless a charge under another limit was sent meanwhile. Any other call may have changed its bucket. So its answer may only
// replace a denial that was right until then.
//
// A look (a Cost of 0) makes no denial if there is none. The bucket may be under another limit, until a charge puts it under
// its own. A denial could keep that charge from being sent.
func (l *lookup) end(c *store.Charge, ok bool, err error) (keep bool) {
	s := l.slot
	if l.adds {
		s.added()
		return false
	}
	unchanged := s.changes == l.changes && s.adding == 0
	if !ok && err == nil && (c.Cost == 0 || s.under == c.Limit) {
		return unchanged && (l.denial != nil || c.Cost != 0)
	}
	s.change()
	return ok && err == nil && unchanged && l.denial != nil
}
