package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

// draw sends to the store what could not be paid here, and takes more tokens of the buckets that are used often. If
// the store refuses that, draw asks only for what the call needs.
func (s *Store) draw(ctx context.Context, k *call, charges []store.Charge, states []store.State) (bool, error) {
	sent := s.now()
	ok, err := s.ask(ctx, k, charges, states)
	if !ok && err == nil && k.draws {
		s.settle(ctx, s.giveUp(k), nil)
		ok, err = s.ask(ctx, k, charges, states)
	}
	received := s.now()
	var backs []store.Charge
	var doubts []*store.State
	s.mu.Lock()
	for i := range k.visits {
		v, c, state := &k.visits[i], &charges[i], &states[i]
		var back store.Charge
		switch {
		case v.paid && !ok:
			back = s.unpay(v, c, state, received)
		case v.draws && ok:
			back = s.publish(v, c, state, sent, received)
		case v.draws: // it failed, and the tokens may have been taken
			s.lost += v.rest
			v.holding.next = 0
		case !v.paid && err == nil:
			s.note(c, ok && !state.Degraded, received)
		}
		if back.Cost < 0 {
			backs, doubts = append(backs, back), append(doubts, state)
		}
		s.leave(v)
	}
	s.collectLater()
	s.mu.Unlock()
	s.settle(ctx, backs, doubts)
	return ok, err
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

// giveUp ends the draws of a call that the store has refused. It returns what gives back their rests. A bucket that has too
// few tokens is not drawn from before it was charged again.
func (s *Store) giveUp(k *call) (backs []store.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range k.visits {
		v := &k.visits[i]
		if !v.draws {
			continue
		}
		if back := s.refund(v, v.rest, now); back.Cost < 0 {
			backs = append(backs, back)
		}
		v.holding.next = 0
		s.leave(v)
	}
	k.draws = false
	return backs
}

// publish makes a lot of the tokens that v has drawn and c does not need. If they cannot be held, publish returns the
// charge that gives them back.
func (s *Store) publish(v *visit, c *store.Charge, state *store.State, sent, received int64) (back store.Charge) {
	h, left := v.holding, v.wish-c.Cost
	h.next = 0
	s.drawn += left
	if left == 0 || state.Degraded {
		s.note(c, !state.Degraded, received)
		s.lost += left
		return back
	}
	v.lot = newLot(h.name, c, state, sent, received)
	if v.lot == nil || v.era != h.era || s.off || !v.lot.tell(c, left, received, state) {
		return s.refund(v, left, received)
	}
	v.lot.tokens = left
	h.lot, h.next, h.used = v.lot, 2*v.wish, received
	return back
}

// unpay puts the tokens of a charge back that was paid here in a call that did not succeed, and fills state. If its lot
// was closed meanwhile, unpay returns the charge that gives the tokens back to the store.
func (s *Store) unpay(v *visit, c *store.Charge, state *store.State, now int64) (back store.Charge) {
	tokens := c.Cost
	if v.holding.lot == v.lot {
		v.lot.tokens += tokens
		if v.lot.tell(c, v.lot.tokens, now, state) {
			return back
		}
		_, tokens = v.holding.close(now)
	}
	return s.refund(v, tokens, now)
}

// refund returns the charge that gives back tokens of v's lot. They are lost if they were taken in an earlier era.
func (s *Store) refund(v *visit, tokens, now int64) (back store.Charge) {
	if v.lot == nil || v.era != v.holding.era {
		s.lost += tokens
		return back
	}
	back = v.lot.refund(tokens, now)
	s.lost += tokens + back.Cost
	return back
}
