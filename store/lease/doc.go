// Package lease saves calls of a store for keys that are used often. It takes several tokens of a bucket at once,
// and spends them in this process.
//
//	s := ratelimit.Must(lease.New(ratelimit.Must(redisstore.New(client, redisstore.Config{})), lease.Config{}))
//	defer s.Close()
//	limiter, err := ratelimit.New(ratelimit.Config{Store: s, Policies: policies})
//
// The first call for a key takes only its own tokens. Each time that the tokens are used up within [Config.Hold], twice as
// many are taken at once, up to [Config.Fraction] of the burst. Tokens that are not spent go back to the store before they
// are older than Hold, and on Close.
//
// To use it with package fallback, put the fallback inside: lease.New(fallback.New(…), …). Then held tokens can be spent
// while the inner store is unavailable.
//
// # What is allowed
//
// In any period, all replicas together allow at most burst + rate × time, whatever fails. The bucket in the store has paid
// for all leased tokens, and gets no others back. A replica that crashes and a reply that is lost can lose tokens, but
// cannot create any. A held token is not spent once the bucket would be full with it.
//
// Changes by others are not known here for up to Hold:
//   - Tokens that others refund or give back. In a period that begins after that, the replicas may allow more than
//     burst + rate × time, by at most the tokens that came back in the Hold before the period.
//   - A bucket that the store loses, or that others reset, block or unblock.
//   - A limit that others change.
//
// A Reset in this Store drops the tokens that are held or being fetched. A Block, a charge with Lock and a charge under
// another limit first give back the held tokens, and drop those that are being fetched. The store does not see charges that
// are paid here until the next call for their bucket. So if the rate changes, either rate may count for the time since the
// last call.
//
// # What is refused
//
// A call may be refused although there are tokens, because other replicas hold them, or because another call in this
// process is fetching them. Each replica holds at most Fraction of the burst, and spends it or gives it back within Hold. A
// replica that crashes loses at most as many tokens. So does a call of the store that fails or that a stand-in answers.
//
// # What a State says
//
// For a call that was paid here, Remaining and ResetAfter count two parts. One is the bucket in the store after the last
// lease, refilled since. The other is the tokens that are left of the lease. There may be fewer tokens, because other
// replicas have taken some since then. There may be more, because other replicas have not spent their leases yet. Times
// count from the reply of the store.
//
// # Which calls are paid here
//
// A charge is paid here only if its limit is a rate, and if it has a cost and none of MaxWait, Shadow, Owed, Settles and
// Lock. A call with any other
// charge first gives back the held tokens of its buckets, and then goes to the store. So a key is hardly leased if each of
// its calls is settled later, by a refund or an Owed charge. Of a call with several charges, only those that cannot be paid
// here go to the store.
//
// While tokens of a key are being fetched, other calls for the key go to the store: no call waits for another. An answer of
// a stand-in ([store.State.Degraded]) is returned to the caller, and makes no lease.
package lease
