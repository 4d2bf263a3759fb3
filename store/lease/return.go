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
	// returnTime is how long one round of giving back may take.
	returnTime = time.Second

	// returnsAtOnce is how many buckets get tokens back at once.
	returnsAtOnce = 16
)

// settle gives tokens back. Each bucket then holds what it would hold without a lease. So its State is the right one for
// the charge whose tokens came back; it goes to states, unless that is nil. If settle fails, the tokens are lost: giving
// them back again might create some.
func (s *Store) settle(ctx context.Context, backs []store.Charge, states []*store.State) error {
	if len(backs) == 0 {
		return nil
	}
	answers := make([]store.State, len(backs))
	_, err := s.store.Take(ctx, backs, answers)
	s.gaveBack(backs, err == nil)
	if err != nil {
		return err
	}
	for i, state := range states {
		*state = answers[i]
	}
	return nil
}

// gaveBack counts tokens that went back to the store, or were lost on the way.
func (s *Store) gaveBack(backs []store.Charge, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range backs {
		if ok {
			s.returned -= backs[i].Cost
		} else {
			s.lost -= backs[i].Cost
		}
	}
}

// collectLater sets the collector. If nothing is leased, none runs.
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
	s.giveBack(rests) // those that fail are lost
}

// old closes the lots that are at least that old, and forgets buckets that were not used for Hold. It returns a visit for
// each of the lots, with its rest.
func (s *Store) old(age int64) (rests []visit) {
	now := s.now()
	for _, h := range s.holdings {
		switch l := h.lot; {
		case l != nil && l.tokens > 0:
			if now-l.Sent >= age {
				v := visit{holding: h, paid: true}
				v.enter()
				v.lot, v.rest = h.close(now)
				rests = append(rests, v)
			}
		case h.calls == 0 && now-h.used > s.hold.Microseconds():
			delete(s.holdings, h.name)
		}
	}
	return rests
}

// giveBack gives tokens back to many buckets. It returns for how many it failed, and the first error.
func (s *Store) giveBack(rests []visit) (failed int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), returnTime)
	defer cancel()
	var working sync.WaitGroup
	room := make(chan struct{}, returnsAtOnce)
	for i := range rests {
		room <- struct{}{}
		working.Go(func() {
			defer func() { <-room }()
			s.mu.Lock()
			back := s.refund(&rests[i], rests[i].rest, s.now())
			s.leave(&rests[i])
			s.mu.Unlock()
			if back.Cost == 0 {
				return
			}
			if e := s.settle(ctx, []store.Charge{back}, nil); e != nil {
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
	if failed, err := s.giveBack(rests); err != nil {
		return fmt.Errorf("lease: Close: could not give back the tokens of %d of %d buckets: %w", failed, len(rests), err)
	}
	return nil
}
