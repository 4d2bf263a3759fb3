package lease

import "github.com/go-tokenbucket/ratelimit/store"

// A name is the name of a bucket.
type name struct{ policy, key string }

// A holding is what this process knows of a bucket that it leases.
type holding struct {
	name
	limit  store.Limit // of the latest charge
	leased *leased     // the held tokens, nil if there are none
	next   int64       // how many tokens the next draw takes; 0 if the bucket was not used often
	used   int64       // when tokens were last drawn or given back

	drawing bool // a call draws tokens; other calls go to the store meanwhile
	stops   int  // resets and blocks under way; no call draws tokens meanwhile
	calls   int  // calls under way that come back to the holding

	// generation counts resets, blocks, charges that lock, and changes of the limit. Tokens of an earlier generation are neither spent
	// nor given back. After a reset the bucket is full without them, and during a block they must not be spent.
	generation int
}

// open returns the holding of a bucket. If there is none, it makes one.
func (s *Store) open(n name) *holding {
	h := s.holdings[n]
	if h == nil {
		both := n.policy + n.key // a copy: the strings may be parts of something large
		n = name{both[:len(n.policy)], both[len(n.policy):]}
		h = &holding{name: n, used: s.now()}
		s.holdings[n] = h
	}
	return h
}

// leave ends a charge that entered its holding. It does nothing for other charges.
func (s *Store) leave(cs *chargeState) {
	if cs.draws {
		cs.holding.drawing = false
	} else if !cs.paid {
		return
	}
	cs.draws = false
	cs.holding.calls--
	s.tidy(cs.holding)
}

// stop begins a new generation of h, for a call that resets or blocks the bucket. No call draws tokens until resume.
func (h *holding) stop() {
	h.generation++
	h.stops++
	h.calls++
}

// resume runs after the reply to the same call.
func (s *Store) resume(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.stops--
	h.calls--
	s.tidy(h)
}

// tidy forgets h if it has no lease and no next draw, and no call comes back to it.
func (s *Store) tidy(h *holding) {
	if h.calls == 0 && h.leased == nil && h.next == 0 {
		delete(s.holdings, h.name)
	}
}

// close takes the lease of h out of use, and returns the lease and the tokens that it had. If it had some, the next lease is half
// as large.
func (h *holding) close(now int64) (l *leased, tokens int64) {
	if l, h.leased = h.leased, nil; l == nil || l.tokens == 0 {
		return nil, 0
	}
	tokens, l.tokens = l.tokens, 0
	h.used = now
	h.next /= 4 // it was twice the size of l
	return l, tokens
}

// retire closes the lease of h. Its tokens go to refunds.
func (s *Store) retire(refunds []refund, h *holding, now int64) []refund {
	l, tokens := h.close(now)
	return s.refund(refunds, &chargeState{holding: h, leased: l, generation: h.generation}, tokens, now, nil)
}
