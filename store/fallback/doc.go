// Package fallback keeps limits in force while a store is unavailable: a second store answers meanwhile, by default one in
// memory.
//
//	buckets := redisstore.New(client, redisstore.Config{})
//	s := fallback.New(buckets, nil, fallback.Config{Replicas: 3})
//	defer s.Close()
//
// # When the secondary answers
//
// A call that fails in the primary, or is not answered by the deadline of its context, is answered by the secondary at
// once. So the secondary must not have to wait for others. A context without deadline gets one after Config.Slow. When too
// many calls have failed or were slow, the primary is given up, and the secondary answers without asking it. A few probes
// a second find out when the primary is well again. No caller waits for them.
//
// Some calls fail without an answer from the secondary, and do not count against the primary:
//   - calls whose callers went away, or left the primary less time than Slow
//   - calls that fail with store.ErrOverloaded
//   - calls that store.Validate refuses
//
// A call does not count as slow while this process lacks processor time. An answer of the secondary has State.Degraded set.
//
// # What is allowed during an outage
//
// While the secondary answers, each limit is divided by the number of replicas, in rate and burst, though to no less than
// the largest cost of a request for the bucket. A bucket begins with its share of what the primary last said it held. If
// an earlier outage left less of it in the secondary, it begins with that.
//
// # Replicas that come and go
//
// Set Config.ReplicasFunc where an autoscaler changes the number of replicas. When the number grows during an outage, each
// replica makes up for the shares that the new ones bring: its buckets miss as many tokens of a smaller share as before,
// and may go into debt for it. When the number falls, a bucket keeps its tokens, and fills up to the larger share. So all
// replicas together stay at burst + rate × time. New replicas may spend their shares of the burst at once, before the
// others have made up for them.
//
// A number that rises and falls while no replica comes or goes costs tokens. Numbers that fall for less than 5 seconds do
// not count. A replica that stops during an outage takes with it what it has allowed and not charged to the primary, and
// its debts. A replica that takes its place, so that the number stays the same, begins with full shares.
//
// # What is charged after an outage
//
// When the primary is back, it is charged for what the secondary allowed meanwhile, and for what was Owed, into debt if
// need be. It is not charged for what its bucket did not refill in the outage because it was full. Of a bucket that was
// charged in the outage, that is known from the last charge on only.
//
// Until the debts are paid, n replicas with Replicas n have allowed at most burst + rate × time in all. During an outage
// of all replicas they allow that, too. During an outage of k of them, the others allow the whole limit, and all together
// up to 1 + k/n times the limit. The debt of such an outage takes up to k/n of its length to be paid. Use
// store.WithoutStandIn where that is not acceptable.
//
// More is allowed only by:
//   - buckets that the primary has forgotten when it is back, because nobody charged them for their time to full
//     (redisstore forgets them after up to twice that). For the first replica that is back, they count as full since it
//     knew that they could be, so that only what has not refilled is charged.
//   - calls that the primary may have carried out although they failed, before it is given up. A call that failed with
//     store.ErrNotCharged is charged when the primary is back.
//   - charges for an outage that failed, unless with store.ErrNotCharged
//   - a primary that has lost its data: up to a burst, and the debts that were lost
//   - buckets that Config.MaxKeys has no room for
//
// Less is allowed where replicas have no use for their shares.
//
// # Refunds and resets
//
// Refunds during an outage are deducted from what the secondary has allowed. The rest of them is lost when the primary is
// back. A refund that fails in the primary is lost, too, because the primary may have carried it out.
//
// A Reset fails if it fails in the primary. While the primary is unavailable, a Reset removes the bucket of the secondary
// and what was allowed of it. When the primary is back, its bucket is reset before it is charged for what was allowed since.
package fallback
