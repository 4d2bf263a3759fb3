package lease

import "github.com/go-tokenbucket/ratelimit/store"

// A name is that of a bucket.
type name struct{ policy, key string }

// A holding is what this process knows of a bucket that it leases.
type holding struct {
	name
	limit  store.Limit // of the latest charge
	leased *leased     // what is held, nil if nothing is
	next   int64       // how many tokens the next draw takes; 0 if the bucket was not used often
	used   int64       // when tokens were last drawn or given back

	drawing bool // a call draws tokens; all others go to the store meanwhile
	stops   int  // resets and blocks under way; nothing is drawn meanwhile
	calls   int  // calls under way that come back to it

	// generation counts resets, blocks, charges that lock, and changes of the limit. Tokens that were taken before one are
	// neither spent nor given back after it: the bucket is full without them, or they would be spent in spite of a block.
	generation int
}

// open returns the holding of a bucket. If there is none, it makes one.
func (s *Store) open(n name) *holding {
	h := s.holdings[n]
	if h == nil {
		both := n.policy + n.key // a copy: they may be parts of something large
		n = name{both[:len(n.policy)], both[len(n.policy):]}
		h = &holding{name: n, used: s.now()}
		s.holdings[n] = h
	}
	return h
}

// leave is for a visit that comes back to its holding. It does nothing for others.
func (s *Store) leave(v *visit) {
	if v.draws {
		v.holding.drawing = false
	} else if !v.paid {
		return
	}
	v.draws = false
	v.holding.calls--
	s.tidy(v.holding)
}

// stop begins a new generation of h, for a call that resets or blocks the bucket. Nothing is drawn before resume.
func (h *holding) stop() {
	h.generation++
	h.stops++
	h.calls++
}

// resume is for the same call after its reply.
func (s *Store) resume(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.stops--
	h.calls--
	s.tidy(h)
}

// tidy forgets h if it says nothing.
func (s *Store) tidy(h *holding) {
	if h.calls == 0 && h.leased == nil && h.next == 0 {
		delete(s.holdings, h.name)
	}
}

// close takes the leased tokens out of use and returns them. If there were some, the next lease is half as
// large.
func (h *holding) close(now int64) (l *leased, tokens int64) {
	if l, h.leased = h.leased, nil; l == nil || l.tokens == 0 {
		return nil, 0
	}
	tokens, l.tokens = l.tokens, 0
	h.used = now
	h.next /= 4 // which is twice as much as l was
	return l, tokens
}

// retire closes the lease of h. Its tokens go to backs.
func (s *Store) retire(backs []refund, h *holding, now int64) []refund {
	l, tokens := h.close(now)
	return s.refund(backs, &visit{holding: h, leased: l, generation: h.generation}, tokens, now, nil)
}
