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

	// Slots is nil until this process has taken a slot of a concurrency limit.
	Slots *SlotStats

	// Waiting is how many requests and calls have a place to wait in the Limiter, and MaxWaiting how many places there
	// are. A call has a place while it waits for its tokens, and while the Store decides whether it must. Only
	// ratelimit.Limiter.Stats fills them.
	Waiting, MaxWaiting int
}

// SlotStats are the slots of concurrency limits that this process has taken, by policy.
type SlotStats struct {
	Held map[string]int64 // held now, of all keys; without those of 0
	Lost map[string]int64 // how many were lost before they were released: see State.Lost
}

// RedisStats are the counts of a redisstore.
type RedisStats struct {
	// Secret reports that the store hides identities with a secret. So nobody else should write keys into this Redis.
	Secret bool

	// Calls is how many calls of Take were sent, and Charges how many charges they had. A call over several servers or
	// hash slots counts once for each. Merged is how many Calls joined an identical call. Direct is how many Calls their
	// callers sent themselves, because nothing was under way.
	Calls, Charges, Merged, Direct int64

	// Batches is how many script calls the Calls were sent in. A script call that was sent again counts again, for example
	// because the server did not have the script or a slot moved.
	Batches int64

	// Queued is how many calls wait to be sent, and OldestQueued for how long the first of them has waited.
	// InFlight is how many pipelines of batches wait for their answer.
	Queued, InFlight int
	OldestQueued     time.Duration

	// Errors is how many calls of Take failed, by kind. All kinds are always present: "timeout", "network", "pool",
	// "readonly", "loading", "oom", "noperm", "busy", "redirect", "clusterdown", "crossslot", "noscript", "no_bucket",
	// "queue_full", "overloaded", "canceled", "closed" and "other".
	Errors map[string]int64

	// Redirects is how many batches were sent again, because a slot of a Cluster moved or had no master. Redirects that
	// the client follows itself are not counted. ScriptLoads is how many times a script was loaded.
	Redirects, ScriptLoads int64

	// LastError is the text of the last error, for people. It may hold text of the server, cut and escaped. LastErrorAt is
	// the time of that error.
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
	Leases, Max int   // buckets that are leased now, and that may be
	Held        int64 // tokens of these buckets that are held now

	// Drawn is how many tokens were taken in advance, beyond the cost of the call that took them. Of these, Returned went
	// back to the store, Lost are worth nothing any more, and Held are held now. Calls have spent the rest, without a call
	// of the store.
	Drawn, Returned, Lost int64
}

// FallbackStats are the counts of a fallback.
type FallbackStats struct {
	Away   bool      // the primary is unavailable
	Since  time.Time // when the primary was last given up, or was last back; zero if it was never unavailable
	Reason string    // why the primary was last given up, for people

	Probes   int64 // calls that looked whether the primary is back
	Answered int64 // calls that the secondary answered
	Charged  int64 // tokens that the primary was charged after outages, because the secondary had allowed them

	Pending, Max int // buckets that are still to be settled after an outage, and how many there may be

	Outages   []Outage // the last 16, newest first; an outage that goes on has no Until
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

	// Evicted is how many buckets were forgotten for lack of room before they were full, by policy. Policies beyond 64
	// count under "_other".
	Evicted map[string]int64
}

// CacheStats are the counts of a cache, such as that of verified tokens in jwtkey.
type CacheStats struct {
	Entries, Max          int
	Hits, Misses, Evicted int64
}
