package denialcache

import "github.com/go-tokenbucket/ratelimit/store"

var _ store.StatsReporter = (*Store)(nil)

// Stats implements [store.StatsReporter]. It looks at all places for denials, which takes some microseconds for each
// thousand. If the Store passed to [New] remembers denials, too, they are counted together.
func (d *Store) Stats() store.Stats {
	stats, now := store.StatsOf(d.store), d.now()
	d.mu.RLock()
	denials := store.DenialStats{Answered: d.answered.Load(), Max: len(d.slots)}
	for i := range d.slots {
		if known := d.slots[i].denial; known != nil && now-known.Sent <= d.maxAge {
			denials.Kept++
		}
	}
	d.mu.RUnlock()
	if inner := stats.Denials; inner != nil {
		denials.Answered += inner.Answered
		denials.Kept += inner.Kept
		denials.Max += inner.Max
	}
	stats.Denials = &denials
	return stats
}
