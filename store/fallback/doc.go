// Package fallback keeps limits in force while a store, such as Redis, is unavailable. A second store answers
// during the outage. By default it is in memory.
//
//	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
//	s := ratelimit.Must(fallback.New(buckets, nil, fallback.Config{Replicas: 3}))
//	defer s.Close()
//	limiter, err := ratelimit.New(ratelimit.Config{Store: s, Policies: policies})
//
// Clients that had no tokens before the outage stay limited during it. See also the guide [outages].
//
// # When the secondary answers
//
// If the primary fails a call, or does not answer by the deadline of the call's context, the secondary answers the call
// at once. So the secondary must be fast. A context without a deadline gets one after [Config.Slow]. After too many
// calls that failed or were slow, the primary is given up: the secondary answers all calls, and the primary is not
// called. A few probes a second check whether the primary works again. No caller waits for a probe. Answers of the
// secondary have [store.State.Degraded] set.
//
// The secondary does not answer a call that was canceled, that left the primary less time than Slow, or that failed with
// [store.ErrOverloaded]. Such a call does not count against the primary. No call counts as slow while this process lacks
// CPU time. With [store.WithoutStandIn], a caller gets no answer of the secondary.
//
// # Tokens
//
// Before an outage, a reply of the primary that leaves less than half of the burst lowers the secondary's bucket to the
// same part. During an outage, each replica allows its share: the limit divided by the number of replicas, in rate and
// burst. The burst is never below the largest cost of a request for the bucket. The buckets of the secondary are kept
// between outages, and refill at their share of the rate.
//
// After an outage, the first charge of a replica for a bucket settles. It charges the primary for the tokens that the
// secondary has allowed and that have not refilled since. The primary takes at most the tokens of its bucket. So an outage
// leaves no debt. For example, the secondary has allowed 8 tokens, of which 2 have refilled, and the primary's bucket holds
// 5 tokens. Then the primary takes 5.
//
// A call that failed with [store.ErrNotCharged] is settled likewise. After other errors, the primary may have carried out
// the call, and is not charged again.
//
// A refund with [store.Charge.Standby] goes to the secondary. Tokens that were settled before are not refunded. Other
// refunds go to the primary, with the next settlement.
//
// # Slots
//
// During an outage, each replica grants its share of the slots of a concurrency limit, and at least one. They are beside the
// slots that the primary has granted. A release of a slot goes to the store that has granted it. So set [store.Charge.Standby]
// if the State of the slot was Degraded. A release does not wait, also while the primary is unavailable. Slots are not settled:
// after an outage, no client is refused for a slot that nobody holds.
//
// # The bound
//
// With n replicas and Replicas n:
//   - An outage of all replicas exceeds burst + rate × time by at most max(burst, n × largest cost), once.
//   - If the primary comes and goes all the time, a flood has at most 1.15 times the limit. A client that watches its
//     headers and times its requests can have up to 1.3 times the limit. It can have up to 1.75 times the limit if the
//     primary is unavailable most of the time. It can have up to 2 times the limit if the primary hangs again and again,
//     because a call that hangs may have been charged, and is not settled.
//   - While k of n replicas are cut off, all together allow up to 1 + k/n times the limit.
//   - A client whose requests all go to one replica has 1/n of its limit during an outage.
//
// More is allowed only if the primary has lost its data, or if [Config.MaxKeys] has no room for a bucket. Likewise if
// replicas restart in an outage, or if Replicas does not count all of them.
//
// # Blocks, locks and resets
//
// A bucket that the primary has blocked stays blocked during an outage, if this replica has had a reply about the block.
// During an outage, [Store.Block] and a [store.Reset] change the secondary's bucket: on this replica only, and until the
// primary is back. The result is degraded. Locks that the secondary makes also end with the outage. If the primary fails a
// Block or a Reset and is not given up yet, the call fails.
//
// [outages]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/outages.md
package fallback
