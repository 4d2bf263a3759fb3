package lease

import "github.com/go-tokenbucket/ratelimit/store"

var _ store.StatsReporter = (*Store)(nil)

// Stats implements [store.StatsReporter]. It looks at all leased buckets, which takes some microseconds for each
// thousand.
func (s *Store) Stats() store.Stats {
	stats := store.StatsOf(s.store)
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := store.LeaseStats{Max: s.maxKeys, Drawn: s.drawn, Returned: s.returned, Lost: s.lost}
	for _, h := range s.holdings {
		if h.leased != nil && h.leased.tokens > 0 {
			leases.Leases++
			leases.Held += h.leased.tokens
		}
	}
	stats.Leases = &leases
	return stats
}
