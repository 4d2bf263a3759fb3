package lease

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// returnTime is how long a round of refunds may take.
	returnTime = time.Second

	// returnsAtOnce is how many buckets get tokens back at once.
	returnsAtOnce = 16
)

// A refund gives leased tokens back to the store.
type refund struct {
	charge store.Charge
	state  *store.State // to fill for the charge whose tokens come back; nil if it is filled
}

// refund appends the refund of tokens of the lease of cs to refunds. The tokens are lost if they are of an earlier
// generation, or if the bucket has refilled.
func (s *Store) refund(refunds []refund, cs *chargeState, tokens, now int64, state *store.State) []refund {
	if tokens == 0 {
		return refunds
	}
	var c store.Charge
	if cs.leased != nil && cs.generation == cs.holding.generation {
		c = cs.leased.refund(tokens, now)
	}
	s.lost += tokens + c.Cost
	if c.Cost == 0 {
		return refunds
	}
	return append(refunds, refund{c, state})
}

// sendRefunds sends refunds. Each bucket then holds what it would hold without a lease. So the State of the refund is also the
// State of the charge whose tokens come back. If sendRefunds fails, the tokens are lost: a second refund might create tokens.
func (s *Store) sendRefunds(ctx context.Context, refunds []refund) error {
	if len(refunds) == 0 {
		return nil
	}
	charges, states, tokens := make([]store.Charge, len(refunds)), make([]store.State, len(refunds)), int64(0)
	for i := range refunds {
		charges[i] = refunds[i].charge
		tokens -= charges[i].Cost
	}
	_, err := s.store.Take(ctx, charges, states)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.lost += tokens
		return err
	}
	s.returned += tokens
	for i := range refunds {
		if refunds[i].state != nil {
			*refunds[i].state = states[i]
		}
	}
	return nil
}

// collectLater sets the timer of the collector, if anything is leased.
func (s *Store) collectLater() {
	if !s.collecting && !s.off && len(s.holdings) > 0 {
		s.collecting = true
		s.collector.Reset(s.hold / 2)
	}
}

// collect gives back the tokens that would be held for longer than Hold before the next round.
func (s *Store) collect() {
	s.round <- struct{}{}
	defer func() { <-s.round }()
	s.mu.Lock()
	s.collecting = false
	rests := s.old(s.hold.Microseconds() / 2)
	s.collectLater()
	s.mu.Unlock()
	s.giveBackAll(rests) // tokens whose refund fails are lost
}

// old closes the leases that are at least age old, and forgets buckets that were not used for Hold. It returns a
// chargeState for each of these leases, with the rest of the lease.
func (s *Store) old(age int64) (rests []chargeState) {
	now := s.now()
	for _, h := range s.holdings {
		switch l := h.leased; {
		case l != nil && l.tokens > 0:
			if now-l.Sent >= age {
				cs := chargeState{holding: h, paid: true}
				cs.enter()
				cs.leased, cs.rest = h.close(now)
				rests = append(rests, cs)
			}
		case h.calls == 0 && now-h.used > s.hold.Microseconds():
			delete(s.holdings, h.name)
		}
	}
	return rests
}

// giveBackAll gives back the rests of closed leases. It returns for how many buckets it failed, and the first error.
func (s *Store) giveBackAll(rests []chargeState) (failed int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), returnTime)
	defer cancel()
	var working sync.WaitGroup
	room := make(chan struct{}, returnsAtOnce)
	for i := range rests {
		room <- struct{}{}
		working.Go(func() {
			defer func() { <-room }()
			cs := &rests[i]
			s.mu.Lock()
			refunds := s.refund(nil, cs, cs.rest, s.now(), nil)
			s.leave(cs)
			s.mu.Unlock()
			if e := s.sendRefunds(ctx, refunds); e != nil {
				s.mu.Lock()
				failed, err = failed+1, cmp.Or(err, e)
				s.mu.Unlock()
			}
		})
	}
	working.Wait()
	return failed, err
}

// Close gives back all held tokens, within about two seconds. It returns an error if some were lost. From then on
// all calls go to the store. Close does not close the store passed to [New].
func (s *Store) Close() error {
	s.mu.Lock()
	s.off = true
	s.mu.Unlock()
	s.collector.Stop()
	s.round <- struct{}{}
	defer func() { <-s.round }()
	s.mu.Lock()
	rests := s.old(0)
	s.mu.Unlock()
	if failed, err := s.giveBackAll(rests); err != nil {
		return fmt.Errorf("lease: Close: could not give back the tokens of %d of %d buckets: %w", failed, len(rests), err)
	}
	return nil
}
