// Package fallback keeps limits in force while a store, such as Redis, is unavailable. A second store answers
// during the outage. By default it is in memory.
//
//	buckets := redisstore.New(client, redisstore.Config{})
//	s := fallback.New(buckets, nil, fallback.Config{Replicas: 3})
//	defer s.Close()
//	limiter, err := ratelimit.New(ratelimit.Config{Store: s, Policies: policies})
//
// Clients that had no tokens before the outage stay limited during it. See also the guide [outages].
//
// # When the secondary answers
//
// If the primary fails a call, or does not answer by the deadline of the call's context, the secondary answers it
// at once. So the secondary must be fast. A context without a deadline gets one after [Config.Slow]. After too many
// calls that failed or were slow, the primary is given up. From then on the secondary answers all calls, and the
// primary is not called. A few probes a second check whether the primary works again. No caller waits for a probe.
// Answers of the secondary have [store.State.Degraded] set.
//
// Calls that were canceled, that left the primary less time than Slow, or that fail with [store.ErrOverloaded] are not
// answered by the secondary, and do not count against the primary. A call does not count as slow while this process lacks
// CPU time. A caller that must not get an answer of the secondary uses [store.WithoutStandIn].
//
// # Tokens
//
// Before an outage, a reply of the primary that leaves less than half of the burst lowers the secondary's bucket to the
// same part. During an outage, each replica allows its share: the limit divided by the number of replicas, in rate and
// burst. The burst is never below the largest cost of a request for the bucket. The buckets of the secondary are kept
// between outages, and refill at their share of the rate.
//
// After an outage, the first charge of a replica for a bucket settles: the primary is told to take what the secondary has
// allowed, except what has refilled since. The primary takes at most what its bucket holds, so an outage leaves no debt.
// A call that failed with [store.ErrNotCharged] is settled likewise. After other errors, the primary may have carried out
// the call, and is not charged again.
//
// A refund with [store.Charge.Standby] goes to the secondary. What was settled before is not refunded. Other refunds go to
// the primary, with the next settlement.
//
// # The bound
//
// With n replicas and Replicas n:
//   - An outage of all replicas exceeds burst + rate × time by at most max(burst, n × largest cost), once.
//   - If the primary comes and goes all the time, a flood has at most 1.15 times the limit. A client that watches its
//     headers and times its requests can have up to 1.3 times the limit. It can have up to 1.75 times the limit where the
//     primary is away for most of the time, and up to 2 times where it hangs again and again: a call that hangs may have been
//     charged, and is not settled.
//   - While k of n replicas are cut off, all together allow up to 1 + k/n times the limit.
//   - A client whose requests all go to one replica has 1/n of its limit during an outage.
//
// More is allowed only if replicas restart in an outage or Replicas does not count them, if the primary has lost its data,
// and for buckets that [Config.MaxKeys] has no room for.
//
// # Blocks, locks and resets
//
// A bucket that the primary has blocked stays blocked during an outage, as far as a reply has told this replica. During an
// outage, [Store.Block] and a [store.Reset] change the secondary's bucket. That holds on this replica until the primary
// is back, and the result is degraded. The primary is not told afterwards. Locks that the secondary makes end with
// the outage, too. If the primary fails one of these calls and is not given up yet, the call fails.
//
// [outages]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/outages.md
package fallback
