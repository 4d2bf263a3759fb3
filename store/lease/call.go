package lease

import "github.com/go-tokenbucket/ratelimit/store"

// A call is a Take under way.
type call struct {
	visits []visit // one for each charge
	leases bool    // charges that cannot be paid here are drawn; if false, nothing is paid here
	paid   int     // how many visits were paid here
	draws  bool    // a visit draws
}

// A visit is a charge of a call.
type visit struct {
	holding    *holding // the holding of its bucket, nil if there is none
	leased     *leased  // the lease that has paid, or that rest is from
	generation int      // the generation of the holding when the call began

	paid  bool  // lease has paid the charge
	draws bool  // the visit has wish tokens: rest from lease, the others from the store
	stops bool  // the visit has stopped the holding
	wish  int64 // the cost of the charge, and the tokens that will be held
	rest  int64
}

// simple reports whether c may be paid from leased tokens.
func simple(c *store.Charge) bool {
	return c.Cost > 0 && c.MaxWait <= 0 && !c.Shadow && !c.Owed && !c.Settles && c.Lock == 0
}

// begin pays the charges that can be paid here, and plans the others. It returns refunds to send before the call.
func (s *Store) begin(k *call, charges []store.Charge, states []store.State) (backs []refund) {
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
		k.visits[i].holding = h
		k.leases = k.leases && simple(c) && (h == nil || h.limit == c.Limit)
	}
	if !k.leases {
		for i := range k.visits {
			backs = s.yield(backs, &k.visits[i], &charges[i], now)
		}
		return backs
	}
	for i := range k.visits {
		v := &k.visits[i]
		if v.paid = v.holding != nil && v.holding.leased.spend(s, &charges[i], now, &states[i]); v.paid {
			k.paid++
		}
	}
	if k.paid == len(k.visits) {
		return nil
	}
	for i := range k.visits {
		v := &k.visits[i]
		if v.paid {
			v.leased = v.holding.leased
			v.enter()
		} else {
			backs = s.plan(backs, v, &charges[i], now)
		}
		k.draws = k.draws || v.draws
	}
	return backs
}

// enter counts a visit that comes back to its holding after the call, with leave.
func (v *visit) enter() {
	v.holding.calls++
	v.generation = v.holding.generation
}

// yield prepares for a charge that is sent unchanged. The held tokens of its bucket go to backs. A reset drops them.
func (s *Store) yield(backs []refund, v *visit, c *store.Charge, now int64) []refund {
	if c.Cost == store.Reset {
		v.holding, v.stops = s.open(name{c.Policy, c.Key}), true
		_, tokens := v.holding.close(now)
		s.lost += tokens
		v.holding.stop()
		return backs
	}
	h := v.holding
	if h == nil {
		return backs
	}
	backs = s.retire(backs, h, now)
	if c.Cost != 0 && h.limit != c.Limit || c.Lock > 0 {
		h.limit, h.next = c.Limit, 0
		h.generation++
		s.tidy(h)
	}
	return backs
}

// plan decides how many tokens to draw for c. Held tokens that c cannot use go to backs.
func (s *Store) plan(backs []refund, v *visit, c *store.Charge, now int64) []refund {
	h := v.holding
	if h != nil && (h.drawing || h.stops > 0) {
		return backs
	}
	next := int64(0)
	if h != nil && h.next > 0 && now-h.used <= s.hold.Microseconds() {
		next = max(h.next, 2*c.Cost)
	} else if s.seen.since(c, now-s.hold.Microseconds()) {
		next = 2 * c.Cost
	}
	if h != nil && h.leased != nil {
		v.leased = h.leased
		left := v.leased.tokens
		v.rest = v.leased.usable(left, now)
		if left > 0 && (next == 0 || v.rest >= c.Cost || v.leased.instant && v.rest < left || c.Cost > c.Limit.Capacity/c.Limit.Unit) {
			backs = s.retire(backs, h, now)
			v.rest, next = 0, 0
		} else {
			s.lost += left - v.rest
			v.leased.tokens, h.leased = 0, nil
		}
	}
	if v.wish = max(c.Cost, min(next, s.most(c))); v.wish == c.Cost && v.rest == 0 {
		if h != nil {
			h.next = 0
			s.tidy(h)
		}
		return backs
	}
	if h == nil {
		if len(s.holdings) >= s.maxKeys {
			return backs
		}
		v.holding = s.open(name{c.Policy, c.Key})
		v.holding.limit = c.Limit
	}
	v.draws, v.holding.drawing = true, true
	v.enter()
	return backs
}

// most returns how many tokens of c's bucket are held at most.
func (s *Store) most(c *store.Charge) int64 {
	return int64(s.fraction * float64(c.Limit.Capacity/c.Limit.Unit))
}
