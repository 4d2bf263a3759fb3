// Package store defines [Store], the interface between the rate limiter and the storage of its token buckets. Most
// programs only choose a Store:
//
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Store:    ratelimit.Must(redisstore.New(client, redisstore.Config{})),
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
// To write a Store, keep a [Kept] for each bucket and call [Decide]. The guide [stores] has a whole one. Package
// [github.com/go-tokenbucket/ratelimit/store/storetest] tests whether it keeps these rules.
//
// # Rules of Take
//
//   - Take charges all buckets of a call or none, except for Shadows that cannot pay.
//   - A call is one atomic step. No other call sees a part of it, and no two calls spend the same token.
//   - A call is carried out at most once. It is not carried out if its context has ended before it was sent.
//   - Take returns by the deadline of its context, even if the server behind the Store hangs. The error then wraps
//     the error of the context. If this process lacks CPU time, Take may wait twice as long, and the error also wraps
//     [ErrOverloaded].
//   - Take does not touch charges or states after it has returned.
//
// # Buckets
//
// A bucket that was never charged is full. A Store may forget a bucket once it has had the time to refill, and not
// before. If the bucket was charged under several limits, the longest of their times counts.
//
// A quota is a Limit that refills all at once, when a period of the calendar begins: see [NewQuota]. The Store decides by
// its own clock which period it is. A period that has begun keeps its end, whatever Limit a later charge has. Only a
// quota of another [PeriodUnit] may make it shorter. Within a period, a charge under another quota keeps what was used,
// also if that is more than the new quota. Nothing of it remains when the next period begins. A bucket whose Limit
// changes to one of another kind is full. The kinds are rates, quotas and concurrency limits.
//
// A denied call changes nothing, with one exception. Each charge with a Cost puts the bucket under its own [Limit],
// even if the charge is denied. The tokens of the bucket, or its debt, carry over, up to the new capacity.
//
// # Slots
//
// A concurrency limit is a Limit of slots, which do not refill: see [NewConcurrency]. A charge with a Cost of 1 takes a slot,
// and one with a Cost of -1 releases it. The tokens of the bucket are the slots that are free. A changed Limit leaves the
// slots that are held as they are, also if they are more than it has. A Store forgets no bucket of which a slot is held.
//
// A release is always allowed, and does not wait for a server. A Store that several processes share keeps the slots of each
// of them for a lease, which it renews. So a process that has ended loses its slots after the lease. If a process is out of
// touch for longer than the lease, it may lose them, too. The release of a lost slot frees nothing, and its State is Lost.
// Of the State of a release, only Allowed, Degraded and Lost count. Others may see the slot free a moment later.
//
// A [Reset] ends a block, and leaves the slots that are held as they are.
//
// # Blocks and locks
//
// A blocked bucket denies every charge with a Cost above 0, unless the charge is Owed or Settles. The bucket refills
// during the block, and other charges change its tokens. So a block never adds tokens. A [Blocker] makes and ends blocks.
//
// A lock is a block that a charge makes. A charge with Lock locks the bucket if it is carried out and leaves less than one
// token, unless the bucket is blocked. A refund that leaves one token or more ends the lock, in the same step. A [Reset]
// ends blocks and locks. No other charge ends or shortens them, and the Store keeps the bucket until then.
//
// [stores]: https://github.com/go-tokenbucket/ratelimit/blob/main/docs/stores.md
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
	// false if a charge was denied, except a Shadow. It returns an error if the store failed or if [Validate] refused
	// the call, never because a bucket was empty. After an error, states mean nothing.
	Take(ctx context.Context, charges []Charge, states []State) (ok bool, err error)
}

// A Charge asks one bucket for tokens.
type Charge struct {
	// Policy and Key together name the bucket. Neither may be empty. Any bytes are allowed, and two different pairs
	// never share a bucket.
	Policy, Key string

	// Limit is the rate and capacity of the bucket. It may differ from that of the last call, see "Buckets" in the
	// package comment.
	Limit Limit

	// Cost is in tokens. A Cost of 0 reads the state and changes nothing. A Cost below 0 refunds, at most to full.
	// [Reset] removes the bucket and its block. These are always allowed. A Cost above the burst is never allowed,
	// unless the charge is Owed or Settles.
	Cost int64

	// MaxWait, if above 0, lets the charge reserve tokens that come within MaxWait. State.Wait is then the time until
	// they have come. MaxWait counts in whole microseconds, and at most as 35 years. Nobody can reserve tokens of a
	// quota, or slots.
	MaxWait time.Duration

	// Waited is for how long the caller has waited for a slot. It counts only for slots, together with MaxWait: the caller
	// will charge again within 100 ms if it is refused, until MaxWait has passed. A Store that several processes share may
	// keep a free slot for the process whose caller has waited longest.
	Waited time.Duration

	// Shadow marks a charge that never denies a call. If the bucket cannot pay, State.Allowed is false, and the call
	// goes on without this charge. A Shadow is not charged if another charge denies the call.
	Shadow bool

	// Owed marks a charge for tokens that were used already. For example, a download cost 100 tokens more than its
	// estimate. The charge is always allowed. Tokens that the bucket does not hold become a debt, of at most 2^52
	// credits, which refills first. With Owed, MaxWait has no effect. Owed has no effect if Cost is not above 0.
	Owed bool

	// Settles marks a charge that takes the tokens of the bucket, at most Cost. For example, a Cost of 5 takes 3 from a
	// bucket of 3. The charge is always allowed, and adds no debt. Package fallback uses it to charge for an outage. It
	// must be the only charge of its call, with a Cost above 0 and without MaxWait, Shadow, Owed and Lock.
	Settles bool

	// Standby marks a refund of tokens that a stand-in has allowed: the State of their charge was Degraded. Only package
	// fallback reads it.
	Standby bool

	// Lock, if above 0, is for how long the bucket is locked if the charge leaves less than one token. See "Blocks and
	// locks" in the package comment. Lock is rounded up to a microsecond, and counts at most as 35 years. The charge must
	// have a Cost above 0, and no MaxWait unless it is Owed.
	Lock time.Duration
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
	// the charge's, see package fallback. If no store answered, for a Shadow or in a call that another charge denies,
	// Allowed is true and the numbers are 0.
	Degraded bool

	// Lost reports that a charge released a slot that was not held any more: see "Slots" in the package comment.
	Lost bool

	// Blocked reports that the bucket is blocked or locked: see "Blocks and locks" in the package comment. Remaining is
	// 0 then.
	Blocked bool

	// Remaining is how many whole tokens are left after the call. It is 0 in debt.
	Remaining int64

	// RetryAfter is how long until the bucket can pay, if nobody else charges it, rounded up to a microsecond. It
	// is 0 if Allowed, and [Never] if Cost is above the burst. If Blocked, it is at least the rest of the block, even
	// if Allowed.
	RetryAfter time.Duration

	// ResetAfter is how long until the bucket is full, if nobody charges it, rounded up to a microsecond. For a quota it is
	// how long until the period ends. For slots it is 1 second, as is RetryAfter, because nothing better is known, and 0 if
	// all are free.
	ResetAfter time.Duration

	// Wait is how long until the tokens come that a charge with MaxWait reserved. After an Owed charge, Wait is how
	// long until the debt has refilled. It is rounded up to a microsecond, and 0 without debt.
	Wait time.Duration
}

// Never is the [State.RetryAfter] of a charge that can never succeed.
const Never time.Duration = math.MaxInt64

// Reset is the Cost of a charge that removes the bucket. The bucket is then full under any limit.
const Reset int64 = math.MinInt64

// A Limit is a rate and a capacity, compiled for exact integer arithmetic. A token is worth Unit credits, each
// microsecond adds Refill credits, and a bucket holds at most Capacity credits. Make it once with [NewLimit], not
// for each call.
type Limit = bucket.Limit

// NewLimit compiles a limit: rate tokens are added in each per, and a bucket holds at most burst. The result is
// exact. Only a limit that is too fine for 53 bits is made slower, by less than one part in 1e9.
//
// NewLimit returns an error if the limit would be less precise. The error names each invalid field (Rate, Per,
// Burst) and values that fit.
func NewLimit(rate int64, per time.Duration, burst int64) (Limit, error) {
	return bucket.NewLimit(rate, per, burst)
}

// The units of a [Period].
const (
	Hour  = bucket.Hour
	Day   = bucket.Day
	Week  = bucket.Week // begins on Monday
	Month = bucket.Month
)

type (
	// A PeriodUnit is the length of a [Period].
	PeriodUnit = bucket.PeriodUnit

	// A Period is the calendar of a quota: the hours, days, weeks or months of a time zone. Make it with [NewPeriod].
	Period = bucket.Period
)

// NewPeriod returns the Period of a time zone of the IANA database, such as "Europe/Berlin". "" is UTC. The error is that
// of [time.LoadLocation]. "Local" is an error, because it is another zone on another host.
func NewPeriod(unit PeriodUnit, zone string) (*Period, error) { return bucket.NewPeriod(unit, zone) }

// NewConcurrency compiles a limit of n slots, of which each is held by a request that runs: see "Slots" in the package
// comment. The error names the invalid field (Rate).
func NewConcurrency(n int64) (Limit, error) { return bucket.NewConcurrency(n) }

// NewQuota compiles a limit of n tokens in each period of p, which refills all at once. Its Unit is 1 and its Refill 0.
// The error names the invalid field (Rate).
func NewQuota(n int64, p *Period) (Limit, error) { return bucket.NewQuota(n, p) }

// ErrInvalidCall is wrapped by the error of a Take whose arguments [Validate] refuses.
var ErrInvalidCall = errors.New("store: invalid call")

// ErrOverloaded is wrapped by the error of a Take if this process has too much to do. Either the Store has no room
// for more waiting calls, or the deadline passed because of missing CPU time. A fallback does not count it as a failure,
// because it says nothing about the server behind the Store. Package ratelimit refuses the request, because clients can
// cause such load.
var ErrOverloaded = errors.New("store: this process is overloaded")

// ErrNotCharged is wrapped by the error of a Take that certainly charged nothing, for example because there was no
// connection. After other errors, the store may have charged the call.
var ErrNotCharged = errors.New("store: nothing was charged")

// ErrNoBucket is wrapped by the error of a Take if a key of the call holds something that no Store has written. A fallback
// does not count it as a failure, because it says nothing about the server behind the Store.
var ErrNoBucket = errors.New("store: a key holds no bucket")

// Validate reports what is wrong with a call, as an error that wraps [ErrInvalidCall]. Every Store calls it first.
// It refuses a call without charges, with fewer states than charges, or with two charges of one bucket. It refuses
// a charge with an empty Policy or Key, or with an invalid Limit, Settles or Lock. It refuses a charge for slots with Owed,
// Settles or Lock.
func Validate(charges []Charge, states []State) error {
	if len(charges) == 0 || len(states) < len(charges) {
		return fmt.Errorf("%w: %d charges and %d states: must be at least one charge, and a state for each", ErrInvalidCall, len(charges), len(states))
	}
	for i := range charges {
		c := &charges[i]
		if c.Policy == "" || c.Key == "" {
			return fmt.Errorf("%w: charge %d: Policy %q and Key %q must not be empty", ErrInvalidCall, i, c.Policy, c.Key)
		}
		if !c.Limit.Valid() {
			return fmt.Errorf("%w: charge %d: Limit must be made by NewLimit, NewQuota or NewConcurrency", ErrInvalidCall, i)
		}
		if c.Limit.IsConcurrency() && (c.Owed || c.Settles || c.Lock != 0) {
			return fmt.Errorf("%w: charge %d: slots are not charged with Owed, Settles or Lock", ErrInvalidCall, i)
		}
		if c.Settles && (len(charges) > 1 || c.Cost <= 0 || c.MaxWait != 0 || c.Shadow || c.Owed || c.Lock != 0) {
			return fmt.Errorf("%w: charge %d: Settles: must be the only charge, with a Cost above 0 and without MaxWait, Shadow, Owed and Lock", ErrInvalidCall, i)
		}
		if c.Lock != 0 && (c.Lock < 0 || c.Cost <= 0 || c.MaxWait > 0 && !c.Owed) {
			return fmt.Errorf("%w: charge %d: Lock %v: must not be negative, and needs a Cost above 0 without MaxWait", ErrInvalidCall, i, c.Lock)
		}
		for j := range i {
			if charges[j].Policy == c.Policy && charges[j].Key == c.Key {
				return fmt.Errorf("%w: charges %d and %d: one bucket must not be charged twice in a call", ErrInvalidCall, j, i)
			}
		}
	}
	return nil
}

// Fill sets s to the state of c's bucket after a call, which charged the bucket if charged is true. The bucket then holds
// credits, and is blocked for another blocked, or 0. The period of a quota goes on for rest; it is 0 for a rate. Every
// Store fills states with Fill.
func (c *Charge) Fill(s *State, credits int64, rest, blocked time.Duration, charged bool) {
	l, left := c.Limit, rest.Microseconds()
	s.Allowed, s.Degraded, s.Lost, s.Blocked = true, false, false, blocked > 0
	s.Remaining = l.Remaining(credits)
	s.RetryAfter, s.ResetAfter, s.Wait = 0, duration(l.ResetAfter(credits, left)), 0
	if charged {
		if c.Cost > 0 && !c.Settles {
			s.Wait = duration(l.Wait(credits, left))
		}
	} else {
		need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles)
		switch retry := l.RetryAfter(credits, need, debt, left); retry {
		case 0:
			s.Allowed = blocked <= 0 || bucket.Passes(need, debt)
		case bucket.Never:
			s.Allowed, s.RetryAfter = false, Never
		default:
			s.Allowed, s.RetryAfter = false, duration(retry)
		}
	}
	if blocked > 0 {
		s.Remaining = 0
		s.RetryAfter = max(s.RetryAfter, blocked)
		s.ResetAfter = max(s.ResetAfter, blocked)
	}
}

func duration(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}
