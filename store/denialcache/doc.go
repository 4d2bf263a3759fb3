// Package denialcache refuses without asking a store what the store is certain to refuse, so that a flood upon a spent limit
// does not reach it. Package redisstore has one inside, unless its Config turns it off.
//
// From when a bucket refused a charge, it is known what the bucket holds at most at any later time, until somebody adds
// tokens. Calls with a peek or with a charge that is Owed are always put to the store.
//
// Refunds, resets, charges and changed limits count from when their calls return, if they went through this Store. For up
// to Config.MaxAge, a refusal does not know of:
//   - what others did in the store, such as other replicas
//   - buckets that the store lost
//   - a clock of the store that was set
//   - a call that failed and was carried out later
//
// Times in a State count from when the reply came. So a RetryAfter is never shorter than that of the store, and longer by
// less than a round trip.
package denialcache
