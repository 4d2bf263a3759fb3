package promratelimit

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

var (
	waiting = gauge("waiting_requests",
		"Requests and calls that wait for their tokens.", "limiter")
	maxWaiting = gauge("waiting_requests_max",
		"Requests and calls that may wait for their tokens.", "limiter")

	heldSlots = gauge("held_slots",
		"Slots of concurrency limits that this process holds, by policy.", "limiter", "store", "policy")
	lostSlots = counter("lost_slots",
		"Slots that were lost before they were released, because their lease had ended, by policy.", "limiter", "store", "policy")

	redisCalls = counter("redis_calls",
		"Calls of the store that were sent to Redis, in batches.", "limiter", "store")
	redisBatches = counter("redis_batches",
		"Script calls that were sent to Redis.", "limiter", "store")
	redisCharges = counter("redis_charges",
		"Charges in the calls that were sent to Redis.", "limiter", "store")
	redisMerged = counter("redis_merged_calls",
		"Calls that were sent as one with an identical call.", "limiter", "store")
	redisDirect = counter("redis_direct_batches",
		"Batches that a lone caller sent itself.", "limiter", "store")
	redisQueued = gauge("redis_queued_calls",
		"Calls that wait to be sent to Redis.", "limiter", "store")
	redisQueueAge = gauge("redis_queue_age_seconds",
		"How long the oldest call in the queue has waited to be sent to Redis.", "limiter", "store")
	redisInFlight = gauge("redis_in_flight_batches",
		"Batches that wait for the answer of Redis.", "limiter", "store")
	redisErrors = counter("redis_errors",
		"Calls that failed, by kind of error.", "limiter", "store", "kind")
	redisRedirects = counter("redis_redirects",
		"Batches that a Cluster sent on to another master.", "limiter", "store")
	redisScriptLoads = counter("redis_script_loads",
		"How many times a script was loaded into Redis.", "limiter", "store")

	denialsAnswered = counter("denial_cache_answered_calls",
		"Calls that were denied without a call of the store.", "limiter", "store")
	denialsKept = gauge("denial_cache_denials",
		"Denials that are kept.", "limiter", "store")
	denialsMax = gauge("denial_cache_denials_max",
		"Denials that may be kept.", "limiter", "store")

	leases = gauge("lease_buckets",
		"Buckets that are leased.", "limiter", "store")
	leasesMax = gauge("lease_buckets_max",
		"Buckets that may be leased.", "limiter", "store")
	leaseHeld = gauge("lease_held_tokens",
		"Tokens that are drawn, and not spent yet.", "limiter", "store")
	leaseDrawn = counter("lease_drawn_tokens",
		"Tokens that leases drew from the store.", "limiter", "store")
	leaseReturned = counter("lease_returned_tokens",
		"Tokens that leases gave back.", "limiter", "store")
	leaseLost = counter("lease_lost_tokens",
		"Tokens that were drawn, and neither spent nor given back.", "limiter", "store")

	fallbackAway = gauge("fallback_away",
		"1 while the primary store is unavailable and the fallback answers, else 0.", "limiter", "store")
	fallbackSince = gauge("fallback_changed_timestamp_seconds",
		"When the primary store was given up, or was back, last; 0 if it was never given up.", "limiter", "store")
	fallbackProbes = counter("fallback_probes",
		"Calls that looked whether the primary store is back.", "limiter", "store")
	fallbackAnswered = counter("fallback_answered_calls",
		"Calls that the fallback answered.", "limiter", "store")
	fallbackCharged = counter("fallback_charged_tokens",
		"Tokens that were charged to the primary store after it was back.", "limiter", "store")
	fallbackPending = gauge("fallback_pending_buckets",
		"Buckets that are still to be charged to the primary store.", "limiter", "store")
	fallbackMax = gauge("fallback_pending_buckets_max",
		"Buckets of which it may be remembered what is still to be charged.", "limiter", "store")

	memoryBuckets = gauge("memory_buckets",
		"Buckets in memory.", "limiter", "store")
	memoryMax = gauge("memory_buckets_max",
		"Buckets that may be in memory.", "limiter", "store")
	memoryBytes = gauge("memory_bytes",
		"Memory of the buckets, estimated.", "limiter", "store")
	memoryBlocked = gauge("memory_blocked_buckets",
		"Buckets in memory that are blocked.", "limiter", "store")
	memoryEvicted = counter("memory_evicted_buckets",
		"Buckets that were forgotten for lack of room, by policy.", "limiter", "store", "policy")

	cacheEntries = gauge("cache_entries",
		"Entries of a cache.", "cache")
	cacheMax = gauge("cache_entries_max",
		"Entries that a cache may have.", "cache")
	cacheHits = counter("cache_hits",
		"Look-ups that found an entry.", "cache")
	cacheMisses = counter("cache_misses",
		"Look-ups that found no entry.", "cache")
	cacheEvicted = counter("cache_evicted_entries",
		"Entries that were removed for lack of room.", "cache")
)

func collectStats(to chan<- prometheus.Metric, l limiter) {
	stats := l.Stats()
	waiting.send(to, float64(stats.Waiting), l.name)
	maxWaiting.send(to, float64(stats.MaxWaiting), l.name)
	policies := l.Policies()
	s := sender{to: to, limiter: l.name, store: "primary"}
	s.collect(stats, policies)
	if stats.Fallback != nil {
		s.store = "secondary"
		s.collect(stats.Fallback.Secondary, policies)
	}
}

// A sender sends series of the parts of a limiter's store.
type sender struct {
	to             chan<- prometheus.Metric
	limiter, store string
}

func (s *sender) number(m metric, value int)    { m.send(s.to, float64(value), s.limiter, s.store) }
func (s *sender) count(m metric, value int64)   { m.send(s.to, float64(value), s.limiter, s.store) }
func (s *sender) value(m metric, value float64) { m.send(s.to, value, s.limiter, s.store) }

// each sends a series for each name.
func (s *sender) each(m metric, counts map[string]int64) {
	shown := make(map[string]int64, len(counts))
	for name, n := range counts {
		shown[strings.ToValidUTF8(name, "\uFFFD")] += n
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		m.send(s.to, float64(shown[name]), s.limiter, s.store, name)
	}
}

func (s *sender) collect(stats store.Stats, policies []ratelimit.Policy) {
	held, lost, evicted := make(map[string]int64), make(map[string]int64), make(map[string]int64)
	for _, p := range policies { // also those at 0, so that their first change is seen
		if evicted[p.Name] = 0; p.Limit.IsConcurrency() {
			held[p.Name], lost[p.Name] = 0, 0
		}
	}
	if slots := stats.Slots; slots != nil {
		maps.Copy(held, slots.Held)
		maps.Copy(lost, slots.Lost)
	}
	s.each(heldSlots, held)
	s.each(lostSlots, lost)
	if r := stats.Redis; r != nil {
		s.count(redisCalls, r.Calls)
		s.count(redisBatches, r.Batches)
		s.count(redisCharges, r.Charges)
		s.count(redisMerged, r.Merged)
		s.count(redisDirect, r.Direct)
		s.number(redisQueued, r.Queued)
		s.value(redisQueueAge, r.OldestQueued.Seconds())
		s.number(redisInFlight, r.InFlight)
		s.each(redisErrors, r.Errors)
		s.count(redisRedirects, r.Redirects)
		s.count(redisScriptLoads, r.ScriptLoads)
	}
	if d := stats.Denials; d != nil {
		s.count(denialsAnswered, d.Answered)
		s.number(denialsKept, d.Kept)
		s.number(denialsMax, d.Max)
	}
	if l := stats.Leases; l != nil {
		s.number(leases, l.Leases)
		s.number(leasesMax, l.Max)
		s.count(leaseHeld, l.Held)
		s.count(leaseDrawn, l.Drawn)
		s.count(leaseReturned, l.Returned)
		s.count(leaseLost, l.Lost)
	}
	if f := stats.Fallback; f != nil {
		away, since := 0, 0.0
		if f.Away {
			away = 1
		}
		if !f.Since.IsZero() {
			since = float64(f.Since.UnixMilli()) / 1000
		}
		s.number(fallbackAway, away)
		s.value(fallbackSince, since)
		s.count(fallbackProbes, f.Probes)
		s.count(fallbackAnswered, f.Answered)
		s.count(fallbackCharged, f.Charged)
		s.number(fallbackPending, f.Pending)
		s.number(fallbackMax, f.Max)
	}
	if m := stats.Memory; m != nil {
		s.number(memoryBuckets, m.Buckets)
		s.number(memoryMax, m.Max)
		s.count(memoryBytes, m.Bytes)
		s.number(memoryBlocked, m.Blocked)
		maps.Copy(evicted, m.Evicted)
		s.each(memoryEvicted, evicted)
	}
}

func collectCache(to chan<- prometheus.Metric, name string, c store.CacheStats) {
	cacheEntries.send(to, float64(c.Entries), name)
	cacheMax.send(to, float64(c.Max), name)
	cacheHits.send(to, float64(c.Hits), name)
	cacheMisses.send(to, float64(c.Misses), name)
	cacheEvicted.send(to, float64(c.Evicted), name)
}
