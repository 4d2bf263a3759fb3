// Package store defines [Store], the interface between the rate limiter and the storage of its token buckets. Most
// programs only choose a Store:
//
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Store:    redisstore.New(client, redisstore.Config{}),
//		Policies: policies,
//	})
//
// The stores:
//   - [github.com/go-tokenbucket/ratelimit/store/memstore] keeps buckets in the memory of one process. It is the
//     default.
//   - [github.com/go-tokenbucket/ratelimit/store/redisstore] keeps buckets in Redis, shared by all replicas.
//
// The decorators, which work over any Store:
//   - [github.com/go-tokenbucket/ratelimit/store/fallback] keeps limits in force while a store is unavailable.
//   - [github.com/go-tokenbucket/ratelimit/store/lease] draws several tokens of a bucket at once, to save calls.
//   - [github.com/go-tokenbucket/ratelimit/store/denialcache] answers repeated denials without a call. redisstore
//     has it.
//
// # Write a Store
//
// Implement Take: call [Validate] first, decide with the arithmetic of [Limit], and fill the states with
// [Charge.State]. Then run the tests of package [github.com/go-tokenbucket/ratelimit/store/storetest]. Implement
// [Inspector], too, which [github.com/go-tokenbucket/ratelimit.Limiter.Peek] uses.
//
// A bucket that was never charged is full. A bucket that has had the time to refill is full, too: a Store may
// forget it then, and not before. If it was charged under several limits, it must be full under the last one, and the
// time must have come at which each earlier limit, without later charges, would have filled it.
//
// # Rules of Take
//
//   - Take charges all buckets of a call or none. A refused call takes no tokens and adds none.
//   - A call is one atomic step. No other call sees a part of it, and no two calls spend the same token.
//   - A call is carried out at most once. It is not carried out if its context has ended before it was sent.
//   - Take returns by the deadline of its context, even if the server behind the Store hangs. The error then wraps
//     that of the context. If this process lacks CPU time, Take may wait as long again for an answer that is due.
//     The error then also wraps [ErrOverloaded].
//   - Take does not touch charges or states after it has returned.
//
// # Changed limits
//
// Each charge has its own [Limit], which may differ from the last one of the bucket. The tokens of the bucket, or
// its debt, carry over, up to the new capacity. The first charge with a cost puts the bucket under the new Limit,
// even if the call is refused. Otherwise the Store could forget the bucket when it would be full under the old
// Limit. A bucket that is full under the new Limit stays unchanged until tokens are taken.
//
// # Debt
//
// A charge that is Owed has been used already, such as the rest of a request's cost once that is known. It is
// always allowed, even if its cost is above the burst. What the bucket does not hold becomes a debt, which refills
// first. A debt is at most 2^52 credits. Anything above that is dropped. MaxWait has no effect on an Owed charge.
// Owed has no effect if Cost is below 0, or if both Cost and Refilled are 0.
//
// # Blocked buckets
//
// A bucket can be blocked until a time. Until then no charge with a Cost above 0 is allowed, unless it is Owed. A charge
// with MaxWait does not wait for the end. Underneath, the bucket refills as always, and refunds and Owed charges change
// its tokens. At the end it is what it would be without the block. So a block never adds tokens.
//
// A Charge with a Block and a Cost of 0 blocks the bucket from now on, in place of an earlier block, or ends it. A bucket
// that is kept stays under its limit. One that is not kept is then kept as full under the limit of the charge.
//
// A Charge with a Block and a Cost above 0 locks the bucket if it leaves less than one token. A lock is a block that a
// refund ends if it leaves one token or more. A lock never shortens a block. If it ends after a block that is no lock,
// it makes that longer, and no refund ends it.
//
// A [Reset] ends both. A changed limit and an expired bucket end neither: a Store keeps a blocked bucket until its block
// has ended. If the clock of callers is set back, a block ends when the clock reaches its end.
//
// # After an outage
//
// Refilled and Outage of a [Charge] are for package fallback. After an outage it charges the tokens that a stand-in
// allowed. Some of them have refilled in the stand-in, and are in Refilled. They are charged, too, except for the
// refill that the bucket missed in the outage because it was full. That refill pays for them, but only once. A
// bucket that the Store has forgotten counts as full during all of Outage, but not before. For other buckets only
// the time since their last charge counts.
package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A Store keeps token buckets. It is safe for concurrent use. The package comment has the rules for writing one.
type Store interface {
	// Take charges every bucket its cost, or none of them. It fills a state for each charge either way. It returns
	// false if a charge was not allowed, except a Shadow. It returns an error if the store failed or if [Validate]
	// refused the call, never because a bucket was empty. After an error, states mean nothing.
	Take(ctx context.Context, charges []Charge, states []State) (ok bool, err error)
}

// A Charge asks one bucket for tokens.
type Charge struct {
	// Policy and Key together name the bucket. Neither may be empty. Any bytes are allowed, and two different pairs
	// never share a bucket.
	Policy, Key string

	// Limit is the rate and capacity of the bucket. It may differ from the last call's: the tokens or the debt
	// carry over, see "Changed limits" in the package comment.
	Limit Limit

	// Cost is in tokens. 0 reads the state: it is always allowed and changes nothing. Below 0 refunds, at most to
	// full, and is always allowed. [Reset] removes the bucket and is always allowed. A Cost above the burst is
	// never allowed, unless it is Owed.
	Cost int64

	// MaxWait, if above 0, lets the charge reserve tokens that come within MaxWait. State.Wait then says when they
	// have come. It counts in whole microseconds, and at most as 35 years.
	MaxWait time.Duration

	// Shadow marks a charge that never refuses a call. If the bucket cannot pay, State.Allowed is false, and the
	// call goes on without this charge. A Shadow is not charged if another charge refuses the call.
	Shadow bool

	// Owed marks a charge for something that was used already. It is always allowed and may leave a debt, see
	// "Debt" in the package comment. It is not charged if another charge refuses the call.
	Owed bool

	// Refilled is how many more tokens a stand-in allowed during the last Outage and counts as refilled since. See
	// "After an outage" in the package comment. It must be 0 unless the charge is Owed and Cost is not below 0.
	Refilled int64

	// Outage is the period of Refilled. It ends now.
	Outage time.Duration

	// Block, with a Cost of 0, blocks the bucket for this long, or unblocks it if below 0. With a Cost above 0, it
	// locks the bucket for this long if the charge leaves less than one token. It is rounded up to a microsecond,
	// and counts at most as 35 years. See "Blocked buckets" in the package comment.
	Block time.Duration
}

// A State is the answer of a bucket to a charge. At a limit of 1 per second with a burst of 5, the first charge of
// 1 gets
//
//	State{Allowed: true, Remaining: 4, ResetAfter: 1 * time.Second}
//
// and the sixth in a row gets
//
//	State{Allowed: false, Remaining: 0, RetryAfter: 1 * time.Second, ResetAfter: 5 * time.Second}
type State struct {
	// Allowed reports whether the bucket could pay. The bucket is charged only if the whole call was allowed.
	Allowed bool

	// Degraded reports that a stand-in answered while the real store is unavailable. Its limits may be a part of
	// the charge's, see package fallback. If nobody answered, and that refuses nothing (a Shadow, or a call that
	// another charge refuses), Allowed is true and the numbers are 0.
	Degraded bool

	// Blocked reports that the bucket is blocked: see "Blocked buckets" in the package comment. Remaining is 0 then.
	Blocked bool

	// Remaining is how many whole tokens are left, after the charge if it was made. It is 0 in debt.
	Remaining int64

	// RetryAfter is how long until the bucket can pay, if nobody else charges it, rounded up to a microsecond. It
	// is 0 if Allowed, and [Never] if Cost is above the burst. If Blocked, it is at least the rest of the block, also
	// if Allowed.
	RetryAfter time.Duration

	// ResetAfter is how long until the bucket is full, if nobody charges it, rounded up to a microsecond.
	ResetAfter time.Duration

	// Wait is how long until the tokens come that a charge with MaxWait reserved. After an Owed charge, it is how
	// long until its debt has refilled. It is rounded up to a microsecond, and 0 without debt.
	Wait time.Duration
}

// Never is the [State.RetryAfter] of a charge that can never succeed.
const Never time.Duration = math.MaxInt64

// A Limit is a rate and a capacity, compiled for exact integer arithmetic. A token is worth Unit credits, each
// microsecond adds Refill credits, and a bucket holds at most Capacity credits. Make it once with [NewLimit], not
// for each call.
type Limit struct {
	// Unit is the worth of a token, Refill is what each microsecond adds, and Capacity is what a full bucket holds.
	// All are in credits.
	Unit, Refill, Capacity int64
}

// NewLimit compiles a limit: rate tokens are added in each per, and a bucket holds at most burst. The result is
// exact. If a limit is too fine for 53 bits, it is slower, by a relative error below 1e-9.
//
// NewLimit returns an error if the limit would be less precise. The error names each invalid field (Rate, Per,
// Burst) and values that fit.
func NewLimit(rate int64, per time.Duration, burst int64) (Limit, error) {
	l, err := bucket.NewLimit(rate, per, burst)
	return Limit(l), err
}

// ErrInvalidCall is wrapped by the error of a Take whose arguments [Validate] refuses.
var ErrInvalidCall = errors.New("store: invalid call")

// ErrOverloaded is wrapped by the error of a Take if this process has too much to do. Either the Store has no room
// for more waiting calls, or the deadline passed because of missing CPU time. It says nothing about the server
// behind the Store. A fallback does not count it as a failure. Package ratelimit refuses the request, because
// clients can make such load.
var ErrOverloaded = errors.New("store: this process is overloaded")

// ErrNotCharged is wrapped by the error of a Take that certainly charged nothing, for example because there was no
// connection. A fallback then charges the store later for the tokens that the stand-in allowed. After other errors,
// the store may have charged the call.
var ErrNotCharged = errors.New("store: nothing was charged")

// Validate reports what is wrong with a call, as an error that wraps [ErrInvalidCall]. Every Store calls it first.
// It refuses a call without charges, with fewer states than charges, or with two charges of one bucket. It refuses
// a charge with an empty Policy or Key, with a Limit that NewLimit cannot have made, or with an invalid Refilled,
// Outage or Block.
func Validate(charges []Charge, states []State) error {
	if len(charges) == 0 || len(states) < len(charges) {
		return fmt.Errorf("%w: %d charges and %d states: must be at least one charge, and a state for each", ErrInvalidCall, len(charges), len(states))
	}
	for i := range charges {
		c := &charges[i]
		if c.Policy == "" || c.Key == "" {
			return fmt.Errorf("%w: charge %d: Policy %q and Key %q must not be empty", ErrInvalidCall, i, c.Policy, c.Key)
		}
		if l := c.Limit; l.Unit < 1 || l.Refill < 1 || l.Capacity < l.Unit || l.Capacity > bucket.MaxCredits || l.Refill > l.Capacity {
			return fmt.Errorf("%w: charge %d: Limit must be made by NewLimit", ErrInvalidCall, i)
		}
		if c.Refilled != 0 && (c.Refilled < 0 || c.Outage < 0 || c.Cost < 0 || !c.Owed) {
			return fmt.Errorf("%w: charge %d: Refilled %d and Outage %v must not be negative, and need Owed and a Cost of at least 0", ErrInvalidCall, i, c.Refilled, c.Outage)
		}
		if c.Block != 0 && (c.Cost < 0 || c.Cost == 0 && (c.Owed || c.Refilled != 0) || c.Cost > 0 && (c.Block < 0 || c.MaxWait > 0)) {
			return fmt.Errorf("%w: charge %d: Block %v needs a Cost of 0 that is not Owed, or, if above 0, a Cost above 0 without MaxWait", ErrInvalidCall, i, c.Block)
		}
		for j := range i {
			if charges[j].Policy == c.Policy && charges[j].Key == c.Key {
				return fmt.Errorf("%w: charges %d and %d: one bucket must not be charged twice in a call", ErrInvalidCall, j, i)
			}
		}
	}
	return nil
}

// State returns the state of c's bucket from the credits that it holds after the call. charged says whether the
// call charged it. Every Store fills states with it, or with [Charge.Fill], and for a blocked bucket then calls
// [Charge.Shut].
func (c *Charge) State(credits int64, charged bool) (s State) {
	c.Fill(&s, credits, charged)
	return s
}

// Fill sets s to the state that [Charge.State] returns, without a copy.
func (c *Charge) Fill(s *State, credits int64, charged bool) {
	l := bucket.Limit(c.Limit)
	s.Allowed, s.Degraded, s.Blocked = true, false, false
	s.Remaining = l.Remaining(credits)
	s.RetryAfter, s.ResetAfter, s.Wait = 0, duration(l.ResetAfter(credits)), 0
	if charged {
		if c.Cost > 0 || c.Refilled > 0 {
			s.Wait = duration(l.Wait(credits))
		}
		return
	}
	need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed)
	switch retry := l.RetryAfter(credits, need, debt); retry {
	case 0:
	case bucket.Never:
		s.Allowed, s.RetryAfter = false, Never
	default:
		s.Allowed, s.RetryAfter = false, duration(retry)
	}
}

// Shut changes s, which [Charge.Fill] has filled, to the state of a bucket that is blocked for left after the call.
// charged is the same. If left is 0, nothing changes.
func (c *Charge) Shut(s *State, left time.Duration, charged bool) {
	if left <= 0 {
		return
	}
	s.Blocked, s.Remaining = true, 0
	s.RetryAfter = max(s.RetryAfter, left)
	s.ResetAfter = max(s.ResetAfter, left)
	if !charged && c.Cost > 0 && !c.Owed {
		s.Allowed = false
	}
}

func duration(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}
