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

	// maxReason is how many bytes of a reason are kept: it may have text of a server.
	maxReason = 1 << 10
)

var _ store.StatsReporter = (*Store)(nil)

// Stats implements [store.StatsReporter], with the Stats of the primary.
func (f *Store) Stats() store.Stats {
	stats := store.StatsOf(f.primary)
	own := f.counts.report()
	own.Pending, own.Max = int(f.used.size.Load()), f.used.most
	own.Secondary = store.StatsOf(f.secondary)
	stats.Fallback = own
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
	reason := strings.Clone(logtext.Show(fmt.Sprint(o.reason), maxReason))
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.outages); n > 0 {
		c.outages[n-1].Charged = c.charged.Load() - c.outages[n-1].charged
	}
	if len(c.outages) == maxOutages {
		c.outages = slices.Delete(c.outages, 0, 1)
	}
	c.outages = append(c.outages, countedOutage{
		Outage:   store.Outage{Since: o.since, Reason: reason},
		probes:   c.probes.Load(),
		answered: c.answered.Load(),
		charged:  c.charged.Load(),
	})
}

// end records the end of the last outage. Some of it may be charged later.
func (c *counts) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := &c.outages[len(c.outages)-1]
	last.Until = time.Now()
	last.Probes, last.Answered = c.probes.Load()-last.probes, c.answered.Load()-last.answered
}

// report returns the counts and the outages.
func (c *counts) report() *store.FallbackStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := &store.FallbackStats{Probes: c.probes.Load(), Answered: c.answered.Load(), Charged: c.charged.Load()}
	for i, o := range slices.Backward(c.outages) {
		if i == len(c.outages)-1 {
			o.Charged = stats.Charged - o.charged
			stats.Since, stats.Reason = o.Until, o.Reason
			if stats.Away = o.Until.IsZero(); stats.Away {
				stats.Since = o.Since
				o.Probes, o.Answered = stats.Probes-o.probes, stats.Answered-o.answered
			}
		}
		stats.Outages = append(stats.Outages, o.Outage)
	}
	return stats
}
