package lease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// returnTime is how long one round of giving back may take.
	returnTime = time.Second

	// returnsAtOnce is how many buckets get tokens back at once.
	returnsAtOnce = 16
)

// settle gives tokens back within a call. Each bucket then holds what it would hold without a lease. So its State
// is the right one for the charge whose tokens came back; it goes to states, unless that is nil. If settle fails,
// the tokens are lost: giving them back again might create some.
func (s *Store) settle(ctx context.Context, backs []store.Charge, states []*store.State) {
	if len(backs) == 0 {
		return
	}
	answers := make([]store.State, len(backs))
	ok, err := s.store.Take(ctx, backs, answers)
	s.gaveBack(backs, ok && err == nil)
	if !ok || err != nil {
		return
	}
	for i, state := range states {
		if state != nil {
			*state = answers[i]
		}
	}
}

// yield gives back all held tokens of the buckets of a call, before the call goes to the store.
func (s *Store) yield(ctx context.Context, visits []visit, charges []store.Charge, now int64) {
	var backs []store.Charge
	for i := range visits {
		v, c := &visits[i], &charges[i]
		if v.lot != nil && (v.lot.unspent.Load() > 0 || stops(c)) {
			back, left := v.slot.retire(v.lot, now)
			if v.lot.void() {
				back.Cost = 0
			}
			if s.lost.Add(left + back.Cost); back.Cost < 0 {
				backs = append(backs, back)
			}
		}
	}
	s.settle(ctx, backs, nil)
}

// returnRests gives back the rests of closed lots, for calls that are refused.
func (s *Store) returnRests(ctx context.Context, visits []visit) {
	now := s.now()
	var backs []store.Charge
	for i := range visits {
		if v := &visits[i]; v.rest > 0 {
			if v.lot.void() {
				s.lost.Add(v.rest)
			} else {
				backs = append(backs, s.refund(v.lot, v.rest, now))
			}
			v.rest = 0
		}
	}
	s.settle(ctx, backs, nil)
}

// retire closes a lot. It returns the charge that gives its tokens back, and how many there were. If there were
// some, the next lot is half as large.
func (slot *slot) retire(l *lot, now int64) (back store.Charge, left int64) {
	if left = l.close(); left > 0 {
		back = l.refund(left, now)
	}
	next := l.next
	if back.Cost < 0 {
		next /= 4 // which is twice as much as l was
	}
	slot.lot.CompareAndSwap(l, l.spent(next, now))
	return back, left
}

// collectLater starts the timer that gives lots back in time. Without lots there is no timer.
func (s *Store) collectLater() {
	if !s.collecting.Load() && s.collecting.CompareAndSwap(false, true) && !s.off.Load() {
		s.collector.Reset(s.hold / 2)
	}
}

// collect gives back the lots that would become older than Hold before the next round.
func (s *Store) collect() {
	s.round <- struct{}{}
	defer func() { <-s.round }()
	if s.off.Load() {
		return
	}
	s.collecting.Store(false)
	rests, more := s.old(s.hold.Microseconds() / 2)
	if more {
		defer s.collectLater()
	}
	s.giveBack(rests) // those that fail are lost
}

// A rest is the tokens that were left in a closed lot.
type rest struct {
	lot    *lot
	tokens int64
}

// old retires the lots that are at least that old, and forgets those without tokens for longer than Hold. It
// returns what to give back, and whether other lots are left.
func (s *Store) old(age int64) (rests []rest, more bool) {
	now, hold := s.now(), s.hold.Microseconds()
	for i := range s.slots {
		slot := &s.slots[i]
		l := slot.lot.Load()
		switch {
		case l == nil:
			continue
		case l.unspent.Load() <= 0:
			if now-l.Received > hold && l.closeEmpty() {
				slot.lot.CompareAndSwap(l, nil)
				continue
			}
		case now-l.Sent >= age:
			if back, left := slot.retire(l, now); back.Cost < 0 {
				rests = append(rests, rest{l, left})
			} else {
				s.lost.Add(left)
			}
		}
		more = true
	}
	return rests, more
}

// giveBack gives tokens back to many buckets, each under the limit in force when its turn comes. It returns for how
// many it failed, and the first error.
func (s *Store) giveBack(rests []rest) (failed int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), returnTime)
	defer cancel()
	var next, failures atomic.Int64
	var first sync.Once
	var working sync.WaitGroup
	for range min(returnsAtOnce, len(rests)) {
		working.Go(func() {
			state := make([]store.State, 1)
			for {
				n := int(next.Add(1)) - 1
				if n >= len(rests) {
					return
				}
				if rests[n].lot.void() {
					s.lost.Add(rests[n].tokens)
					continue
				}
				back := []store.Charge{s.refund(rests[n].lot, rests[n].tokens, s.now())}
				if back[0].Cost == 0 {
					continue
				}
				_, e := s.store.Take(ctx, back, state)
				s.gaveBack(back, e == nil)
				if e != nil {
					failures.Add(1)
					first.Do(func() { err = e })
				}
			}
		})
	}
	working.Wait()
	return failures.Load(), err
}

// Close gives back all held tokens, within about two seconds. It returns an error if some were lost. From then on
// all calls go to the store. Close does not close the store passed to [New].
func (s *Store) Close() error {
	if s.off.Swap(true) {
		return nil
	}
	s.collector.Stop()
	s.round <- struct{}{}
	defer func() { <-s.round }()
	rests, _ := s.old(0)
	if failed, err := s.giveBack(rests); err != nil {
		return fmt.Errorf("lease: Close: could not give back the tokens of %d of %d buckets: %w", failed, len(rests), err)
	}
	return nil
}
