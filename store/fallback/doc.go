// Package fallback keeps limits in force while a store, such as Redis, is unavailable. A second store answers
// during the outage. By default it is in memory.
//
//	buckets := redisstore.New(client, redisstore.Config{})
//	s := fallback.New(buckets, nil, fallback.Config{Replicas: 3})
//	defer s.Close()
//	limiter, err := ratelimit.New(ratelimit.Config{Store: s, Policies: policies})
//
// Clients that had no tokens before the outage stay limited during it. Requests allowed during the outage are
// charged to the primary store afterwards. The guide [outages] shows what requests see of each kind of outage.
//
// # When the secondary answers
//
// If the primary fails a call, or does not answer by the deadline of the call's context, the secondary answers it
// at once. So the secondary must be fast. A context without a deadline gets one after [Config.Slow]. After too many
// calls that failed or were slow, the primary is given up. From then on the secondary answers all calls, and the
// primary is not called. A few probes a second check whether the primary works again. No caller waits for a probe.
// Answers of the secondary have [store.State.Degraded] set.
//
// Some failed calls are not answered by the secondary, and do not count against the primary:
//   - calls that were canceled, or that left the primary less time than Slow
//   - calls that fail with [store.ErrOverloaded]
//   - calls that [store.Validate] refuses
//
// A call does not count as slow while this process lacks CPU time. A caller that must not get an answer of the
// secondary uses [store.WithoutStandIn].
//
// # What is allowed during an outage
//
// Each replica has its own secondary. So each limit is divided by the number of replicas, in rate and burst. The
// burst is never below the largest cost of a request for the bucket. A bucket begins with its share of what the
// primary last reported for it. If the secondary has less from an earlier outage, the bucket begins with that.
//
// # What is charged after an outage
//
// When the primary is back, it is charged for the tokens that the secondary allowed, and for Owed charges, into
// debt if necessary. It is not charged for the refill that its bucket missed in the outage because it was full. For
// a bucket that was charged in the outage, that is known only from its last charge on.
//
// By the time that the debts have refilled, n replicas with Replicas n have allowed at most burst + rate × time in
// all. This holds during an outage of all replicas, too. During an outage of only k of them, the others allow the
// whole limit, and all together up to 1 + k/n times the limit. The debt of such an outage takes up to k/n of its
// length to refill.
//
// More is allowed only because of:
//   - Buckets that the primary has forgotten when it is back, because nobody charged them for their time to full.
//     redisstore forgets them after up to twice that time. For the first replica that is back they count as full
//     from the earliest possible time, so only what has not refilled is charged.
//   - Calls that failed before the primary was given up, but that it may have carried out. A call that failed with
//     [store.ErrNotCharged] is charged when the primary is back.
//   - Charges for an outage that failed, except with [store.ErrNotCharged].
//   - A primary that has lost its data: up to a burst, and the debts that were lost.
//   - Buckets that [Config.MaxKeys] has no room for.
//
// Less is allowed if a replica gets less traffic than its share.
//
// # Replicas that come and go
//
// Set [Config.ReplicasFunc] if an autoscaler changes the number of replicas. All replicas together then stay at burst
// + rate × time:
//   - When the number grows during an outage, the shares of new replicas are deducted from the others. Their
//     buckets miss as many tokens of a smaller share as before, and may go into debt. New replicas may spend their
//     burst before that is made up for.
//   - When the number falls, a bucket keeps its tokens and refills up to the larger share. A number counts as
//     fallen after 5 seconds.
//
// A number that rises and falls although no replica comes or goes costs tokens. A replica that stops during an
// outage loses its debts, and the charges that it has not sent to the primary. A replica that replaces it, so that
// the number stays the same, begins with full shares.
//
// # Refunds and resets
//
// A refund during an outage is deducted from what the secondary has allowed. The rest of it is lost when the
// primary is back. A refund that fails in the primary is lost, too, because the primary may have carried it out.
//
// A [store.Reset] fails if it fails in the primary. While the primary is unavailable, a Reset removes the bucket of
// the secondary and what was allowed of it. When the primary is back, its bucket is reset before it is charged for
// what was allowed since.
//
// # Blocks
//
// A bucket that is blocked stays blocked during an outage, if this replica has blocked it or has met it blocked. A replica
// that has not used the bucket since then does not know of the block. It allows its share of the limit until the primary
// is back. A denial says how long the bucket denies, so a block counts for as long as the RetryAfter of the last denial.
// 4,096 blocks are remembered, see [bounds].
//
// During an outage, a block or its end takes effect on this replica at once. The primary is told when it is back: the
// bucket is then blocked for the rest of the time. If several replicas have blocked or unblocked the same bucket, the
// last one to tell the primary wins. A call that blocks or unblocks a bucket fails if it fails in the primary.
//
// A lock is made when the secondary's bucket has less than one token. The primary's bucket is locked, too, if it has less
// than one token after it was charged for the outage. Otherwise the lock ends with the outage: if a token has refilled
// meanwhile, or often with Replicas above 1. During an outage, a refund ends the locks that were made in it, and no earlier
// ones.
//
// [bounds]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/bounds.md
// [outages]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/outages.md
package fallback
