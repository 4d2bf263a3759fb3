package fallback

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/counter"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// maxOutages is how many outages are remembered.
	maxOutages = 16

	// maxReason is how many bytes of a reason are kept, because a reason may have text of a server.
	maxReason = 1 << 10
)

var _ store.StatsReporter = (*Store)(nil)

// Stats implements [store.StatsReporter], with the Stats of the primary.
func (f *Store) Stats() store.Stats {
	stats := store.StatsOf(f.primary)
	own := f.counts.report()
	own.Pending, own.Max = f.used.size(), f.used.maxKeys
	own.Secondary = store.StatsOf(f.secondary)
	stats.Fallback = own
	stats.Slots = slotStats(stats.Slots, own.Secondary.Slots)
	return stats
}

// counts are what Stats reports of calls and outages.
type counts struct {
	probes, charged atomic.Int64
	answered        counter.Counter

	mu      sync.Mutex
	outages []countedOutage // the oldest first
}

// A countedOutage is an outage, and the counts at its beginning.
type countedOutage struct {
	store.Outage
	probes, answered, charged int64
}

// begin records the beginning of o.
func (c *counts) begin(o *outage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update()
	if len(c.outages) == maxOutages {
		c.outages = slices.Delete(c.outages, 0, 1)
	}
	c.outages = append(c.outages, countedOutage{
		Outage:   store.Outage{Since: o.since, Reason: strings.Clone(logtext.Show(fmt.Sprint(o.reason), maxReason))},
		probes:   c.probes.Load(),
		answered: c.answered.Load(),
		charged:  c.charged.Load(),
	})
}

// end records the end of the last outage. Its tokens may be charged later.
func (c *counts) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update().Until = time.Now()
}

// update brings the counts of the last outage up to date, and returns it, or nil. The counts must be locked.
func (c *counts) update() (last *countedOutage) {
	if len(c.outages) > 0 {
		last = &c.outages[len(c.outages)-1]
		if last.Until.IsZero() {
			last.Probes, last.Answered = c.probes.Load()-last.probes, c.answered.Load()-last.answered
		}
		last.Charged = c.charged.Load() - last.charged
	}
	return last
}

// report returns the counts and the outages.
func (c *counts) report() *store.FallbackStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := &store.FallbackStats{Probes: c.probes.Load(), Answered: c.answered.Load(), Charged: c.charged.Load()}
	if last := c.update(); last != nil {
		stats.Since, stats.Reason = last.Until, last.Reason
		if stats.Away = last.Until.IsZero(); stats.Away {
			stats.Since = last.Since
		}
	}
	for _, o := range slices.Backward(c.outages) {
		stats.Outages = append(stats.Outages, o.Outage)
	}
	return stats
}
