package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

// draw sends to the store the charges that could not be paid here, and takes more tokens of buckets that are used often. If
// the store refuses that, draw sends the call again with its own costs only.
func (s *Store) draw(ctx context.Context, k *call, charges []store.Charge, states []store.State) (ok bool, err error) {
	sent := s.now()
	defer func() { s.sendRefunds(ctx, s.end(k, charges, states, ok, err, sent)) }() // also if the store panics
	ok, err = s.callStore(ctx, k, charges, states)
	if !ok && err == nil && k.draws {
		s.sendRefunds(ctx, s.giveUp(k))
		ok, err = s.callStore(ctx, k, charges, states)
	}
	return ok, err
}

// end keeps the tokens that were drawn. If the call did not succeed, it puts back the tokens that were paid here. It returns
// refunds to send.
func (s *Store) end(k *call, charges []store.Charge, states []store.State, ok bool, err error, sent int64) (refunds []refund) {
	received := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range k.chargeStates {
		cs, c, state := &k.chargeStates[i], &charges[i], &states[i]
		switch {
		case cs.paid && !ok:
			refunds = s.unpay(refunds, cs, c, state, received)
		case cs.draws && ok:
			refunds = s.publish(refunds, cs, c, state, sent, received)
		case cs.draws: // the call failed, and the store may have taken the tokens
			s.lost += cs.rest
			cs.holding.next = 0
		case !cs.paid && err == nil:
			s.note(c, ok && !state.Degraded, received)
		}
		s.leave(cs)
	}
	s.collectLater()
	return refunds
}

// callStore sends the charges that were not paid here to the store.
func (s *Store) callStore(ctx context.Context, k *call, charges []store.Charge, states []store.State) (bool, error) {
	if k.paid == 0 && !k.draws {
		return s.store.Take(ctx, charges, states)
	}
	var asked []store.Charge
	for i := range k.chargeStates {
		cs, c := &k.chargeStates[i], charges[i]
		if cs.draws {
			c.Cost = cs.wish - cs.rest
		}
		if !cs.paid {
			asked = append(asked, c)
		}
	}
	answers := make([]store.State, len(asked))
	ok, err := s.store.Take(ctx, asked, answers)
	for i := range k.chargeStates {
		if !k.chargeStates[i].paid && err == nil {
			states[i], answers = answers[0], answers[1:]
		}
	}
	return ok, err
}

// giveUp ends the draws of a call that the store has refused. It returns refunds of their rests. No more tokens of these
// buckets are drawn until each was charged again.
func (s *Store) giveUp(k *call) (refunds []refund) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range k.chargeStates {
		if cs := &k.chargeStates[i]; cs.draws {
			refunds = s.refund(refunds, cs, cs.rest, now, nil)
			cs.holding.next = 0
			s.leave(cs)
		}
	}
	k.draws = false
	return refunds
}

// publish makes a lease of the tokens that cs has drawn beyond the cost of c. If they cannot be held, they go to refunds.
func (s *Store) publish(refunds []refund, cs *chargeState, c *store.Charge, state *store.State, sent, received int64) []refund {
	h, left := cs.holding, cs.wish-c.Cost
	h.next = 0
	s.drawn += left
	if left == 0 || state.Degraded {
		s.note(c, !state.Degraded, received)
		s.lost += left
		return refunds
	}
	cs.leased = newLeased(h.name, c, state, sent, received)
	if cs.leased == nil || cs.generation != h.generation || s.off || !cs.leased.certain(c, left, received, state) {
		return s.refund(refunds, cs, left, received, state)
	}
	cs.leased.tokens = left
	h.leased, h.next, h.used = cs.leased, 2*cs.wish, received
	return refunds
}

// unpay is for a charge that was paid here in a call that did not succeed. It puts the tokens back into their lease, and fills
// state. If the lease was closed meanwhile, the tokens go to refunds.
func (s *Store) unpay(refunds []refund, cs *chargeState, c *store.Charge, state *store.State, now int64) []refund {
	tokens := c.Cost
	if cs.holding.leased == cs.leased && !s.off {
		cs.leased.tokens += tokens
		if cs.leased.certain(c, cs.leased.tokens, now, state) {
			return refunds
		}
		_, tokens = cs.holding.close(now)
	}
	return s.refund(refunds, cs, tokens, now, state)
}
