package lease

import "github.com/go-tokenbucket/ratelimit/store"

var _ store.StatsReporter = (*Store)(nil)

// Stats implements [store.StatsReporter]. It looks at all places for leases, which takes some microseconds for each
// thousand.
func (s *Store) Stats() store.Stats {
	stats := store.StatsOf(s.store)
	leases := store.LeaseStats{Max: len(s.slots), Drawn: s.drawn.Load(), Returned: s.returned.Load(), Lost: s.lost.Load()}
	for i := range s.slots {
		if l := s.slots[i].lot.Load(); l != nil {
			if unspent := l.unspent.Load(); unspent > 0 {
				leases.Leases++
				leases.Held += unspent
			}
		}
	}
	stats.Leases = &leases
	return stats
}

// refund is the refund of l. It counts those of the tokens as lost that are worth nothing any more.
func (s *Store) refund(l *lot, tokens, now int64) store.Charge {
	back := l.refund(tokens, now)
	s.lost.Add(tokens + back.Cost)
	return back
}

// gaveBack counts tokens that went back to the store, or were lost on the way.
func (s *Store) gaveBack(backs []store.Charge, ok bool) {
	count := &s.returned
	if !ok {
		count = &s.lost
	}
	for i := range backs {
		count.Add(-backs[i].Cost)
	}
}
