package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

// draw sends to the store what could not be paid here, and takes more tokens of the buckets that are used often. If
// the store refuses that, draw asks only for what the call needs.
func (s *Store) draw(ctx context.Context, visits []visit, charges []store.Charge, states []store.State) (bool, error) {
	defer func() {
		for i := range visits {
			visits[i].release()
		}
	}()
	plain, paid := s.prepare(ctx, visits, charges, states)
	if paid == len(visits) {
		return true, nil
	}
	if !plain {
		ok, err := s.drawMore(ctx, visits, charges, states)
		if ok || err != nil {
			if err != nil {
				s.undo(ctx, visits, charges, states)
			}
			return ok, err
		}
		s.returnRests(ctx, visits)
	}
	ok, err := s.ask(ctx, visits, charges, states, paid)
	if !ok {
		s.undo(ctx, visits, charges, states)
	}
	now := s.now()
	for i := range visits {
		if v := &visits[i]; v.owns && err == nil {
			v.note(s, &charges[i], ok && plain && !states[i].Degraded, now)
		}
	}
	return ok, err
}

// prepare owns the slots that are free and decides how many tokens to take. It reports whether all unpaid charges
// go to the store unchanged, and how many charges are paid.
func (s *Store) prepare(ctx context.Context, visits []visit, charges []store.Charge, states []store.State) (plain bool, paid int) {
	for i := range visits {
		if v := &visits[i]; !v.paid {
			v.own(s, &charges[i], &states[i])
			v.useOwn(s, &charges[i])
		}
		if visits[i].paid {
			paid++
		}
	}
	plain = true
	if paid == len(visits) {
		return plain, paid
	}
	now := s.now()
	var backs []store.Charge
	for i := range visits {
		v := &visits[i]
		if !v.owns {
			continue
		}
		if back := v.plan(s, &charges[i], now); back.Cost < 0 {
			backs = append(backs, back)
		}
		plain = plain && v.wish == charges[i].Cost && v.rest == 0
	}
	s.settle(ctx, backs, nil)
	return plain, paid
}

// ask sends the unpaid charges to the store unchanged.
func (s *Store) ask(ctx context.Context, visits []visit, charges []store.Charge, states []store.State, paid int) (bool, error) {
	if paid == 0 {
		return s.store.Take(ctx, charges, states)
	}
	var asked []store.Charge
	for i := range visits {
		if !visits[i].paid {
			asked = append(asked, charges[i])
		}
	}
	answers := make([]store.State, len(asked))
	ok, err := s.store.Take(ctx, asked, answers)
	for i, n := 0, 0; err == nil && i < len(visits); i++ {
		if !visits[i].paid {
			states[i] = answers[n]
			n++
		}
	}
	return ok, err
}

// drawMore takes as many tokens as visits wish, and makes lots of those that the call does not need.
func (s *Store) drawMore(ctx context.Context, visits []visit, charges []store.Charge, states []store.State) (bool, error) {
	var asked []store.Charge
	for i := range visits {
		if v := &visits[i]; !v.paid {
			c := charges[i]
			if v.wish > c.Cost {
				v.announce(&c, s.now())
			}
			c.Cost = v.wish - v.rest
			asked = append(asked, c)
		}
	}
	answers := make([]store.State, len(asked))
	sent := s.now()
	ok, err := s.store.Take(ctx, asked, answers)
	received := s.now()
	if err != nil {
		for i := range visits {
			s.lost.Add(visits[i].rest)
		}
	}
	if !ok || err != nil {
		return ok, err
	}
	var backs []store.Charge
	var doubts []*store.State
	back := func(l *lot, tokens, now int64, c *store.Charge, state *store.State) {
		refund := s.refund(l, tokens, now)
		if refund.Limit != c.Limit {
			state = nil // what it answers is not in the terms of c
		}
		backs, doubts = append(backs, refund), append(doubts, state)
	}
	n := -1
	for i := range visits {
		v, c := &visits[i], &charges[i]
		if v.paid {
			continue
		}
		n++
		states[i] = answers[n]
		left := v.wish - c.Cost
		s.drawn.Add(left)
		if left == 0 || answers[n].Degraded {
			if v.owns {
				v.note(s, c, !answers[n].Degraded, received)
			}
			s.lost.Add(left)
			continue
		}
		l := newLot(v, &asked[n], &answers[n], sent, received)
		if l == nil || !v.drawn() {
			s.lost.Add(left)
			continue
		}
		if !l.tell(c, left, received, &states[i]) {
			back(l, left, received, c, &states[i])
			continue
		}
		if !v.publish(l, left) {
			if v.drawn() {
				l.close()
				back(l, left, received, c, &states[i])
			} else {
				s.lost.Add(left)
			}
			continue
		}
		if s.off.Load() { // Close may have looked before, and others have spent of it since
			if left = l.close(); left > 0 {
				back(l, left, received, c, &states[i])
			}
		}
	}
	s.settle(ctx, backs, doubts)
	s.collectLater()
	return true, nil
}

// undo returns what was paid here for a call that did not succeed, and fills states.
func (s *Store) undo(ctx context.Context, visits []visit, charges []store.Charge, states []store.State) {
	now := s.now()
	var backs []store.Charge
	var doubts []*store.State
	for i := range visits {
		v, c := &visits[i], &charges[i]
		if !v.paid {
			continue
		}
		tokens := c.Cost
		if v.lot.undo(tokens) {
			if v.lot.tell(c, max(0, v.lot.unspent.Load()), now, &states[i]) {
				continue
			}
			tokens = v.lot.close()
		}
		if v.lot.void() {
			s.lost.Add(tokens)
			continue
		}
		refund, state := s.refund(v.lot, tokens, now), &states[i]
		if refund.Limit != c.Limit {
			state = nil
		}
		backs, doubts = append(backs, refund), append(doubts, state)
	}
	s.settle(ctx, backs, doubts)
}
