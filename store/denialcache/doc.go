// Package denialcache refuses calls that a store is certain to refuse, without calling the store. So a flood on a
// spent limit does not reach it.
//
//	s := denialcache.New(buckets, denialcache.Config{})
//	limiter, err := ratelimit.New(ratelimit.Config{Store: s, Policies: policies})
//
// Package [github.com/go-tokenbucket/ratelimit/store/redisstore] already has one inside, unless its Config turns it
// off. Use this package with a Store that you write.
//
// After a bucket has refused a charge, the most that it can hold at any later time is known, until somebody adds
// tokens. Calls with an Owed charge or with a Cost of 0 always go to the store.
//
// Refusals of a blocked bucket are remembered, too, for as long as it is blocked. The exception is a bucket that would
// refuse the charge for as long without the block, or that the charge would empty from full.
//
// # What a refusal does not know
//
// Refunds, resets, blocks, charges and changed limits that go through this Store are known when their calls return. For up
// to [Config.MaxAge], a refusal may not know of:
//   - changes by others in the store, such as other replicas
//   - buckets that the store has lost
//   - a clock of the store that was set
//   - a call that failed, but was carried out later
//
// # What a State says
//
// Times count from the reply of the store. So a RetryAfter is never shorter than that of the store, and longer by
// less than a round trip.
package denialcache
