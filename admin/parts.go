package admin

import (
	"maps"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

// redisFacts are store.RedisStats.
type redisFacts struct {
	Calls   int64 `json:"calls"`
	Batches int64 `json:"batches"`
	Charges int64 `json:"charges"`
	Merged  int64 `json:"merged"`
	Direct  int64 `json:"direct"`

	Queued       int     `json:"queued"`
	InFlight     int     `json:"in_flight"`
	OldestQueued seconds `json:"oldest_queued_seconds"`

	Errors      map[string]int64 `json:"errors"`
	Redirects   int64            `json:"redirects"`
	ScriptLoads int64            `json:"script_loads"`

	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
}

// Failed is how many calls failed.
func (r *redisFacts) Failed() int64 { return sum(r.Errors) }

// fallbackFacts are store.FallbackStats.
type fallbackFacts struct {
	Away     bool       `json:"away"`
	Since    *time.Time `json:"since"`
	Reason   string     `json:"reason"`
	Probes   int64      `json:"probes"`
	Answered int64      `json:"answered"`
	Charged  int64      `json:"charged"`
	Pending  int        `json:"pending"`
	Max      int        `json:"max"`

	Outages   []outageFacts `json:"outages"`
	Secondary *memoryFacts  `json:"secondary"`
}

type outageFacts struct {
	Since    time.Time  `json:"since"`
	Until    *time.Time `json:"until"` // nil: it goes on
	Reason   string     `json:"reason"`
	Probes   int64      `json:"probes"`
	Answered int64      `json:"answered"`
	Charged  int64      `json:"charged"`
}

// denialFacts are store.DenialStats.
type denialFacts struct {
	Answered int64 `json:"answered"`
	Kept     int   `json:"kept"`
	Max      int   `json:"max"`
}

// leaseFacts are store.LeaseStats.
type leaseFacts struct {
	Leases   int   `json:"leases"`
	Max      int   `json:"max"`
	Held     int64 `json:"held"`
	Drawn    int64 `json:"drawn"`
	Returned int64 `json:"returned"`
	Lost     int64 `json:"lost"`
}

// memoryFacts are store.MemoryStats.
type memoryFacts struct {
	Buckets int              `json:"buckets"`
	Max     int              `json:"max"`
	Bytes   int64            `json:"bytes"`
	Blocked int              `json:"blocked"`
	Evicted map[string]int64 `json:"evicted"`
}

// EvictedAll is how many buckets were forgotten for lack of room.
func (m *memoryFacts) EvictedAll() int64 { return sum(m.Evicted) }

// cacheFacts are store.CacheStats.
type cacheFacts struct {
	Name    string `json:"name"`
	Entries int    `json:"entries"`
	Max     int    `json:"max"`
	Hits    int64  `json:"hits"`
	Misses  int64  `json:"misses"`
	Evicted int64  `json:"evicted"`
}

// HitRate is the part of all look-ups that found an entry, from 0 to 1.
func (c cacheFacts) HitRate() float64 {
	return finite(float64(c.Hits) / float64(c.Hits+c.Misses))
}

func (f *facts) addParts(s store.Stats) {
	if r := s.Redis; r != nil {
		f.Redis = &redisFacts{
			Calls: r.Calls, Batches: r.Batches, Charges: r.Charges, Merged: r.Merged, Direct: r.Direct,
			Queued: r.Queued, InFlight: r.InFlight, OldestQueued: seconds(r.OldestQueued),
			Errors: maps.Clone(r.Errors), Redirects: r.Redirects, ScriptLoads: r.ScriptLoads,
			LastError: logtext.Show(r.LastError, maxShown), LastErrorAt: utc(r.LastErrorAt),
		}
	}
	if b := s.Fallback; b != nil {
		f.Fallback = &fallbackFacts{
			Away: b.Away, Since: utc(b.Since), Reason: logtext.Show(b.Reason, maxShown),
			Probes: b.Probes, Answered: b.Answered, Charged: b.Charged,
			Pending: b.Pending, Max: b.Max,
			Outages:   []outageFacts{},
			Secondary: newMemoryFacts(b.Secondary.Memory),
		}
		for _, o := range b.Outages {
			f.Fallback.Outages = append(f.Fallback.Outages, outageFacts{o.Since.UTC(), utc(o.Until), logtext.Show(o.Reason, maxShown), o.Probes, o.Answered, o.Charged})
		}
	}
	if d := s.Denials; d != nil {
		f.Denials = &denialFacts{d.Answered, d.Kept, d.Max}
	}
	if l := s.Leases; l != nil {
		f.Leases = &leaseFacts{l.Leases, l.Max, l.Held, l.Drawn, l.Returned, l.Lost}
	}
	f.Memory = newMemoryFacts(s.Memory)
}

func newMemoryFacts(m *store.MemoryStats) *memoryFacts {
	if m == nil {
		return nil
	}
	return &memoryFacts{m.Buckets, m.Max, m.Bytes, m.Blocked, maps.Clone(m.Evicted)}
}

func (f *facts) addCaches(caches map[string]interface{ Stats() store.CacheStats }) {
	f.Caches = []cacheFacts{}
	for _, name := range slices.Sorted(maps.Keys(caches)) {
		c := caches[name].Stats()
		f.Caches = append(f.Caches, cacheFacts{name, c.Entries, c.Max, c.Hits, c.Misses, c.Evicted})
	}
}

func sum(counts map[string]int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}
