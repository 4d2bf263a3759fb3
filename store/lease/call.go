package lease

import "github.com/go-tokenbucket/ratelimit/store"

// A call is a Take under way.
type call struct {
	chargeStates []chargeState // one for each charge
	leases       bool          // charges that cannot be paid here are drawn; if false, nothing is paid here
	paid         int           // how many charges were paid here
	draws        bool          // a charge draws
}

// A chargeState is what a call knows of one of its charges.
type chargeState struct {
	holding    *holding // the holding of its bucket, nil if there is none
	leased     *leased  // the lease that has paid, or that has the rest
	generation int      // the generation of the holding when the call began

	paid  bool  // leased has paid the charge
	draws bool  // the charge takes wish tokens: rest of them from leased, the others from the store
	stops bool  // the charge has stopped the holding
	wish  int64 // the cost of the charge, and the tokens that will be held
	rest  int64 // tokens left in leased
}

// simple reports whether c may be paid from leased tokens. Those of a quota would have to end with its period, and a slot is
// held by one request.
func simple(c *store.Charge) bool {
	return c.Cost > 0 && c.MaxWait <= 0 && !c.Shadow && !c.Owed && !c.Settles && c.Lock == 0 && c.Limit.Refill > 0
}

// begin pays the charges that can be paid here, and plans the others. It returns refunds to send before the call.
func (s *Store) begin(k *call, charges []store.Charge, states []store.State) (refunds []refund) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return nil
	}
	now := s.now()
	k.leases = true
	for i := range charges {
		c := &charges[i]
		h := s.holdings[name{c.Policy, c.Key}]
		k.chargeStates[i].holding = h
		k.leases = k.leases && simple(c) && (h == nil || h.limit == c.Limit)
	}
	if !k.leases {
		for i := range k.chargeStates {
			refunds = s.yield(refunds, &k.chargeStates[i], &charges[i], now)
		}
		return refunds
	}
	for i := range k.chargeStates {
		cs := &k.chargeStates[i]
		if cs.paid = cs.holding != nil && cs.holding.leased.spend(s, &charges[i], now, &states[i]); cs.paid {
			k.paid++
		}
	}
	if k.paid == len(k.chargeStates) {
		return nil
	}
	for i := range k.chargeStates {
		cs := &k.chargeStates[i]
		if cs.paid {
			cs.leased = cs.holding.leased
			cs.enter()
		} else {
			refunds = s.plan(refunds, cs, &charges[i], now)
		}
		k.draws = k.draws || cs.draws
	}
	return refunds
}

// enter counts a charge that comes back to its holding after the call, with leave.
func (cs *chargeState) enter() {
	cs.holding.calls++
	cs.generation = cs.holding.generation
}

// yield prepares for a charge that is sent unchanged. The held tokens of its bucket go to refunds. A reset drops them.
func (s *Store) yield(refunds []refund, cs *chargeState, c *store.Charge, now int64) []refund {
	if c.Cost == store.Reset {
		cs.holding, cs.stops = s.open(name{c.Policy, c.Key}), true
		_, tokens := cs.holding.close(now)
		s.lost += tokens
		cs.holding.stop()
		return refunds
	}
	h := cs.holding
	if h == nil {
		return refunds
	}
	refunds = s.retire(refunds, h, now)
	if c.Cost != 0 && h.limit != c.Limit || c.Lock > 0 {
		h.limit, h.next = c.Limit, 0
		h.generation++
		s.tidy(h)
	}
	return refunds
}

// plan decides how many tokens to draw for c. Held tokens that c cannot use go to refunds.
func (s *Store) plan(refunds []refund, cs *chargeState, c *store.Charge, now int64) []refund {
	h := cs.holding
	if h != nil && (h.drawing || h.stops > 0) {
		return refunds
	}
	next := int64(0)
	if h != nil && h.next > 0 && now-h.used <= s.hold.Microseconds() {
		next = max(h.next, 2*c.Cost)
	} else if s.seen.since(c, now-s.hold.Microseconds()) {
		next = 2 * c.Cost
	}
	if h != nil && h.leased != nil {
		cs.leased = h.leased
		left := cs.leased.tokens
		cs.rest = cs.leased.usable(left, now)
		if left > 0 && (next == 0 || cs.rest >= c.Cost || cs.leased.instant && cs.rest < left || c.Cost > c.Limit.Capacity/c.Limit.Unit) {
			refunds = s.retire(refunds, h, now)
			cs.rest, next = 0, 0
		} else {
			s.lost += left - cs.rest
			cs.leased.tokens, h.leased = 0, nil
		}
	}
	if cs.wish = max(c.Cost, min(next, s.maxHeld(c))); cs.wish == c.Cost && cs.rest == 0 {
		if h != nil {
			h.next = 0
			s.tidy(h)
		}
		return refunds
	}
	if h == nil {
		if len(s.holdings) >= s.maxKeys {
			return refunds
		}
		cs.holding = s.open(name{c.Policy, c.Key})
		cs.holding.limit = c.Limit
	}
	cs.draws, cs.holding.drawing = true, true
	cs.enter()
	return refunds
}

// maxHeld returns how many tokens of c's bucket are held at most.
func (s *Store) maxHeld(c *store.Charge) int64 {
	return int64(s.fraction * float64(c.Limit.Capacity/c.Limit.Unit))
}
