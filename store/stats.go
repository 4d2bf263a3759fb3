package store

import "time"

// A StatsReporter is a [Store] that reports [Stats]. All stores and decorators of this module are StatsReporters. A
// decorator reports the Stats of the Store that it wraps, and its own.
type StatsReporter interface {
	// Stats returns the counts since the Store was made. It reads memory of this process only, and may be called
	// as often as once a second.
	Stats() Stats
}

// StatsOf returns the [Stats] of s. A decorator that is no [StatsReporter] may have a method Unwrap() Store, which
// leads on. Otherwise StatsOf returns the zero Stats.
func StatsOf(s Store) Stats {
	for s != nil {
		if reporter, ok := s.(StatsReporter); ok {
			return reporter.Stats()
		}
		decorator, ok := s.(interface{ Unwrap() Store })
		if !ok {
			break
		}
		s = decorator.Unwrap()
	}
	return Stats{}
}

// Stats are counts and levels of a [Store] and what it wraps, in this process. A part that is nil does not exist.
// Counts only grow, until the process ends.
type Stats struct {
	Redis    *RedisStats
	Denials  *DenialStats
	Leases   *LeaseStats
	Fallback *FallbackStats
	Memory   *MemoryStats

	// Waiting is how many requests and calls wait for their tokens in the Limiter, or for the answer of the Store that
	// may make them wait. MaxWaiting is how many may. They are filled by ratelimit.Limiter.Stats.
	Waiting, MaxWaiting int
}

// RedisStats are the counts of a redisstore.
type RedisStats struct {
	// Calls of Take that were sent, and their Charges. A call over several servers or hash slots counts for each part of
	// it. Merged is how many Calls were sent as one with an identical call before them. Direct is how many Calls their
	// callers sent themselves, because nothing was under way.
	Calls, Charges, Merged, Direct int64

	// Batches is how many script calls these were sent in. It includes those that were sent again: the server did not
	// have the script, a slot moved, or a lone call needed the general script.
	Batches int64

	// Queued is how many calls wait to be sent, and OldestQueued for how long the first of them has waited.
	// InFlight is how many pipelines of batches wait for their answer.
	Queued, InFlight int
	OldestQueued     time.Duration

	// Errors is how many calls of Take failed, by kind: "timeout", "network", "pool", "readonly", "loading", "oom",
	// "noperm", "busy", "redirect", "clusterdown", "crossslot", "noscript", "no_bucket", "queue_full", "overloaded",
	// "canceled", "closed" and "other". All are always present.
	Errors map[string]int64

	// Redirects is how many batches a Cluster refused because a slot moved or had no master, and that were sent
	// again. Redirects that the client follows itself are not counted. ScriptLoads is how many times a script was
	// loaded.
	Redirects, ScriptLoads int64

	// LastError is the text of the last of these errors, for people. It may hold text of the server, cut and escaped.
	// LastErrorAt is when it was.
	LastError   string
	LastErrorAt time.Time
}

// DenialStats are the counts of a denialcache.
type DenialStats struct {
	Answered  int64 // calls that were denied without a call of the Store
	Kept, Max int   // denials that are kept, and that may be
}

// LeaseStats are the counts of a lease.
type LeaseStats struct {
	Leases, Max int   // buckets of which tokens are held now, and of which they may be
	Held        int64 // these tokens

	// Drawn is how many tokens were taken in advance, beyond the cost of the call that took them. Returned is how many
	// of them went back to the store, and Lost how many are worth nothing any more. Without those and Held, calls have
	// spent them: each was paid without a call of the store.
	Drawn, Returned, Lost int64
}

// FallbackStats are the counts of a fallback.
type FallbackStats struct {
	Away   bool      // the primary is unavailable
	Since  time.Time // since when it is or has been away or back; zero if it was never away
	Reason string    // why it was given up last, for people

	Probes   int64 // calls that looked whether the primary is back
	Answered int64 // calls that the secondary answered
	Charged  int64 // tokens that the secondary allowed, and that the primary was told to take after outages

	Pending, Max int // buckets of which the secondary has allowed something that is not settled yet, and how many may be

	Outages   []Outage // the last 16, newest first; the one that goes on has no Until
	Secondary Stats
}

// An Outage is a period in which the primary of a fallback was unavailable.
type Outage struct {
	Since, Until              time.Time
	Reason                    string
	Probes, Answered, Charged int64 // as in FallbackStats; Charged until the next outage begins
}

// MemoryStats are the counts of a memstore.
type MemoryStats struct {
	Buckets, Max int   // buckets that are kept, and that may be
	Bytes        int64 // of memory, estimated
	Blocked      int   // buckets that are blocked

	// Evicted is how many buckets that were not full were forgotten for lack of room, by policy. Beyond 64 policies
	// they count under "_other".
	Evicted map[string]int64
}

// CacheStats are the counts of a cache, such as that of verified tokens in jwtkey.
type CacheStats struct {
	Entries, Max          int
	Hits, Misses, Evicted int64
}
