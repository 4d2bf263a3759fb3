package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

// draw sends to the store the charges that could not be paid here, and takes more tokens of buckets that are used often. If
// the store refuses that, draw sends the call again with its own costs only.
func (s *Store) draw(ctx context.Context, k *call, charges []store.Charge, states []store.State) (ok bool, err error) {
	sent := s.now()
	defer func() { s.settle(ctx, s.end(k, charges, states, ok, err, sent)) }() // also if the store panics
	ok, err = s.ask(ctx, k, charges, states)
	if !ok && err == nil && k.draws {
		s.settle(ctx, s.giveUp(k))
		ok, err = s.ask(ctx, k, charges, states)
	}
	return ok, err
}

// end keeps the tokens that were drawn. If the call did not succeed, it puts back the tokens that were paid here. It returns
// refunds to send.
func (s *Store) end(k *call, charges []store.Charge, states []store.State, ok bool, err error, sent int64) (backs []refund) {
	received := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range k.visits {
		v, c, state := &k.visits[i], &charges[i], &states[i]
		switch {
		case v.paid && !ok:
			backs = s.unpay(backs, v, c, state, received)
		case v.draws && ok:
			backs = s.publish(backs, v, c, state, sent, received)
		case v.draws: // the call failed, and the store may have taken the tokens
			s.lost += v.rest
			v.holding.next = 0
		case !v.paid && err == nil:
			s.note(c, ok && !state.Degraded, received)
		}
		s.leave(v)
	}
	s.collectLater()
	return backs
}

// ask sends the charges that were not paid here to the store.
func (s *Store) ask(ctx context.Context, k *call, charges []store.Charge, states []store.State) (bool, error) {
	if k.paid == 0 && !k.draws {
		return s.store.Take(ctx, charges, states)
	}
	var asked []store.Charge
	for i := range k.visits {
		v, c := &k.visits[i], charges[i]
		if v.draws {
			c.Cost = v.wish - v.rest
		}
		if !v.paid {
			asked = append(asked, c)
		}
	}
	answers := make([]store.State, len(asked))
	ok, err := s.store.Take(ctx, asked, answers)
	for i := range k.visits {
		if !k.visits[i].paid && err == nil {
			states[i], answers = answers[0], answers[1:]
		}
	}
	return ok, err
}

// giveUp ends the draws of a call that the store has refused. It returns refunds of their rests. No more tokens of these
// buckets are drawn until each was charged again.
func (s *Store) giveUp(k *call) (backs []refund) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range k.visits {
		if v := &k.visits[i]; v.draws {
			backs = s.refund(backs, v, v.rest, now, nil)
			v.holding.next = 0
			s.leave(v)
		}
	}
	k.draws = false
	return backs
}

// publish makes a lease of the tokens that v has drawn beyond the cost of c. If they cannot be held, they go to backs.
func (s *Store) publish(backs []refund, v *visit, c *store.Charge, state *store.State, sent, received int64) []refund {
	h, left := v.holding, v.wish-c.Cost
	h.next = 0
	s.drawn += left
	if left == 0 || state.Degraded {
		s.note(c, !state.Degraded, received)
		s.lost += left
		return backs
	}
	v.leased = newLeased(h.name, c, state, sent, received)
	if v.leased == nil || v.generation != h.generation || s.off || !v.leased.certain(c, left, received, state) {
		return s.refund(backs, v, left, received, state)
	}
	v.leased.tokens = left
	h.leased, h.next, h.used = v.leased, 2*v.wish, received
	return backs
}

// unpay is for a charge that was paid here in a call that did not succeed. It puts the tokens back into their lease, and fills
// state. If the lease was closed meanwhile, the tokens go to backs.
func (s *Store) unpay(backs []refund, v *visit, c *store.Charge, state *store.State, now int64) []refund {
	tokens := c.Cost
	if v.holding.leased == v.leased && !s.off {
		v.leased.tokens += tokens
		if v.leased.certain(c, v.leased.tokens, now, state) {
			return backs
		}
		_, tokens = v.holding.close(now)
	}
	return s.refund(backs, v, tokens, now, state)
}
