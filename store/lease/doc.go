// Package lease takes tokens of a store for several calls at once and spends them in this process, so that a key that is
// used often costs few calls of the store.
//
//	s := lease.New(redisstore.New(client, redisstore.Config{}), lease.Config{})
//	defer s.Close()
//
// The number of tokens taken at once doubles while they are used up in time, up to Config.Fraction of the burst. The first
// call for a key takes its own tokens only. Tokens that are not spent go back to the store before they were held for longer
// than Config.Hold, and on Close.
//
// Put a fallback inside, as in lease.New(fallback.New(…)), rather than around: the tokens that are held can then be spent
// while the inner store is unavailable.
//
// # What is allowed
//
// Leased tokens have been charged to the bucket in the store, and nothing is given back that was not charged. So from any
// start on, all replicas together admit no more than burst + rate × time, whatever fails: a replica that crashes and a reply
// that is lost lose tokens and never make some. Nor are tokens spent here at a time at which the bucket would be full with
// them.
//
// Three things are not known here, for up to Hold:
//   - tokens that others give back, or refund. In a window that begins later, the replicas may admit up to as many tokens
//     more than burst + rate × time as came back in the Hold before it.
//   - a bucket that the store loses, or that others reset
//   - a limit that others change
//
// Tokens go back under the limit of the last charge that was put to this Store. A Reset that is put to this Store drops the
// tokens that are held and those that are being fetched.
//
// # What is refused
//
// A call may be refused although there are tokens, because other replicas hold them, or another call here is fetching them.
// These are at most Fraction of the burst for each replica, and they are spent or on their way back within Hold. At most as
// many are lost for each replica that crashes, and for each call of the store that fails or that a stand-in answers.
//
// # What a State says
//
// Remaining and ResetAfter of a call that was paid here say what the bucket in the store held after the last lease, refilled
// since, and what is left of the lease. They leave out what other replicas took since then, so that there may be less by
// that. They also leave out what other replicas have not spent yet, so that there may be more. Times count from when the
// reply of the store came.
//
// # Which calls are paid here
//
// Only charges that cost something, with neither MaxWait nor Shadow nor Owed, are paid here. A call with another charge first
// gives back what is held of its buckets, and is then put to the store. So a key each of whose calls is settled later, by a
// refund or by an Owed charge, is hardly leased. Of a call of several charges, the store is asked for those that cannot be
// paid here. While tokens of a key are being fetched, other calls for it pass through, so that none waits for another. An
// answer of a stand-in (State.Degraded) is handed on, and makes no lease.
package lease
