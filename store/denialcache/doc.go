// Package denialcache refuses calls that a store is certain to refuse, without calling the store. So a flood on a
// spent limit does not reach it.
//
//	s := ratelimit.Must(denialcache.New(buckets, denialcache.Config{}))
//	limiter, err := ratelimit.New(ratelimit.Config{Store: s, Policies: policies})
//
// Package [github.com/go-tokenbucket/ratelimit/store/redisstore] already has one inside, unless its Config turns it
// off. Use this package with a Store that you write.
//
// The reply of a refused charge shows how many tokens the bucket has. So the most that the bucket can hold at a later time
// is known, until a call adds tokens. For example, after a charge of 1 was refused on an empty bucket of 1 a second, charges
// of 1 are refused here for a second. Calls with an Owed charge, with a Cost of 0 or for slots always go to the store. A
// slot of a concurrency limit can be free at any time.
//
// Refusals of a blocked bucket are remembered until its block ends. There are two exceptions: the bucket would refuse the
// charge for as long without the block, or the charge costs the whole burst.
//
// # What a refusal does not know
//
// Refunds, resets, blocks, charges and changed limits that go through this Store are known when their calls return. Other
// changes may be unknown for up to [Config.MaxAge]:
//   - changes by others in the store, such as other replicas
//   - buckets that the store has lost
//   - a clock of the store that was set
//   - a call that failed, but was carried out later
//
// # What a State says
//
// Times count from the reply of the store. So a RetryAfter is never shorter than the store's own, and longer by less than
// a round trip.
package denialcache
