// Package store is the contract between the rate limiter and whatever keeps its token buckets.
//
// Package memstore keeps them in memory, package redisstore in Redis. Packages fallback, lease and denialcache decorate any
// Store. To write another one, implement Take, call Validate first, fill the states with Charge.State, and run the tests of
// package storetest.
package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A Store keeps token buckets. It is safe for concurrent use.
//
// A bucket that was never charged is full, and so is one that has had the time to refill: a Store may
// forget it then, and not before.
type Store interface {
	// Take charges every bucket its cost, or none of them, and reports which: ok is false if a charge
	// that is no Shadow was not allowed. It fills states[i] for charges[i] either way. A call that is
	// refused takes no tokens and adds none.
	//
	// The call is one atomic step: no other call sees a part of it, and no two calls spend the same
	// token. It is carried out at most once, and not at all if ctx had ended before it left.
	//
	// err means that the store failed or that Validate refused the call, never that a bucket was empty;
	// ok is then false and states mean nothing. Take returns by ctx's deadline, whatever the store behind
	// it does, and then wraps ctx's error. Where this process lacks processor time, it may wait as long again
	// for an answer that is due, and then wraps ErrOverloaded, too. Neither charges nor states are touched after
	// it has returned.
	Take(ctx context.Context, charges []Charge, states []State) (ok bool, err error)
}

// A Charge is what a call wants of one bucket.
type Charge struct {
	// Policy and Key name the bucket, together. Neither may be empty. Any bytes will do, and no two
	// different pairs share a bucket.
	Policy, Key string

	// Limit is the bucket's rate and capacity. It may differ from the last call's: the tokens that the
	// bucket has left, or its debt, carry over, up to the new capacity. The first charge puts the bucket under
	// the new Limit, also if the call is refused. Otherwise the Store could forget the bucket when it would be
	// full under the old one. A bucket that is full under the new Limit stays as it is until tokens are taken.
	Limit Limit

	// Cost is in tokens. 0 peeks: it is always allowed and changes nothing, and so the bucket is kept under
	// its last limit. Below 0 refunds: it is always allowed and adds tokens, at most to full. Reset, which is
	// math.MinInt64, removes the bucket: it is always allowed, and the bucket is then full under any limit that
	// it is charged under next. A Cost above the limit's burst is never allowed, unless it is Owed.
	Cost int64

	// MaxWait, if above 0, lets the charge reserve tokens that are still to come: it is allowed if they
	// will have come within MaxWait, and State.Wait says when. It counts in whole microseconds, and as
	// 35 years if it is longer.
	MaxWait time.Duration

	// Shadow marks a charge that vetoes nothing: where the bucket cannot pay, the call goes on without
	// it and State.Allowed is false. It is not charged in a call that another charge refuses.
	Shadow bool

	// Owed marks a charge for what has been used already, such as the rest of a request's cost once that is
	// known. It is carried out whatever the bucket holds, also if Cost is above the burst: it is always
	// allowed, vetoes nothing, and leaves what the bucket did not hold as a debt, which has to refill before
	// the bucket holds anything again. No debt is deeper than 2^52 credits; what is owed beyond that is
	// dropped. It is not charged in a call that another charge refuses. MaxWait means nothing for it, and Owed
	// means nothing for a Cost below 0, nor for one of 0 unless something is Refilled.
	Owed bool

	// Refilled is how many more tokens a stand-in allowed in the last Outage and counts as refilled since; see
	// package fallback. They are charged as well, except for what the bucket did not refill in that time because it was
	// full. That refill pays for them, and pays only once. A bucket that the Store has forgotten was full for all
	// of Outage, and nothing is known of the time before. Of another, only the time since its last charge counts. Refilled must be 0 unless the charge is Owed
	// and its Cost is not below 0.
	Refilled int64
	Outage   time.Duration
}

// A State is what a bucket answered to a charge. For a charge of 1 at a limit of 1 per second with a
// burst of 5, the sixth in a row finds
//
//	State{Allowed: false, Remaining: 0, RetryAfter: 1 * time.Second, ResetAfter: 5 * time.Second}
//
// and the first one found
//
//	State{Allowed: true, Remaining: 4, ResetAfter: 1 * time.Second}
type State struct {
	// Allowed says that the bucket could pay. It is charged only if the whole call was allowed.
	Allowed bool

	// Degraded says that a stand-in answered while the real store is away, by limits that may be a part of the
	// charge's; see package fallback. Where nobody did and that vetoes nothing (a Shadow, or a call that another charge
	// refuses), Allowed is true and the numbers are 0.
	Degraded bool

	// Remaining is how many whole tokens are left, after the charge if it was carried out; 0 in debt.
	Remaining int64

	// RetryAfter is how long until the bucket could pay, if nobody else charges it, rounded up to a
	// microsecond; 0 if Allowed, and Never if Cost is above the burst.
	RetryAfter time.Duration

	// ResetAfter is how long until the bucket is full, if nobody charges it, rounded up to a microsecond.
	ResetAfter time.Duration

	// Wait is how long until the tokens that a charge with MaxWait reserved have come, or until the bucket is
	// out of the debt that an Owed one left, rounded up to a microsecond; 0 without debt.
	Wait time.Duration
}

// Never is the State.RetryAfter of a charge that cannot succeed however long one waits.
const Never time.Duration = math.MaxInt64

// A Limit is a rate and a capacity, compiled for exact integer arithmetic: a token is worth Unit
// credits, each microsecond adds Refill credits, and a bucket holds at most Capacity credits. Make it
// with NewLimit, once and not per call.
type Limit struct {
	Unit, Refill, Capacity int64
}

// NewLimit compiles a limit of rate tokens per per with room for burst tokens. The result is exact,
// or, where a limit is too fine for 53 bits, slower by a relative error below 1e-9.
//
// It refuses what would be further off, with an error that names each field at fault (Rate, Per,
// Burst) and what would fit.
func NewLimit(rate int64, per time.Duration, burst int64) (Limit, error) {
	l, err := bucket.NewLimit(rate, per, burst)
	return Limit(l), err
}

// ErrInvalidCall is in the error of a Take whose arguments Validate refuses.
var ErrInvalidCall = errors.New("store: invalid call")

// ErrOverloaded is in the error of a Take for which this process has too much to do: more calls wait than the Store
// has room for, or the deadline passed for want of processor time. It says nothing about the server behind the Store.
// A fallback does not count it, and package ratelimit refuses the request, because clients can make such load.
var ErrOverloaded = errors.New("store: this process is overloaded")

// ErrNotCharged is in the error of a Take that certainly charged nothing, such as one that found no connection. A
// fallback then charges the store for what the stand-in allowed. After other errors the store may have been charged.
var ErrNotCharged = errors.New("store: nothing was charged")

// Validate reports what is wrong with a call, as an error that wraps ErrInvalidCall: no charges, fewer
// states than charges, an empty name or key, a Limit that cannot be of NewLimit, a Refilled or an Outage that must not
// be, or two charges of one bucket. Every Store calls it first.
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
			return fmt.Errorf("%w: charge %d: Refilled %d and Outage %v must not be negative, and be with Owed and a Cost of at least 0", ErrInvalidCall, i, c.Refilled, c.Outage)
		}
		for j := range i {
			if charges[j].Policy == c.Policy && charges[j].Key == c.Key {
				return fmt.Errorf("%w: charges %d and %d: one bucket must not be charged twice in a call", ErrInvalidCall, j, i)
			}
		}
	}
	return nil
}

// State returns the state of c's bucket from the credits it holds after the call, which charged it or
// did not. It is how every Store fills states.
func (c *Charge) State(credits int64, charged bool) State {
	l := bucket.Limit(c.Limit)
	s := State{
		Allowed:    true,
		Remaining:  l.Remaining(credits),
		ResetAfter: duration(l.ResetAfter(credits)),
	}
	if charged {
		if c.Cost > 0 || c.Refilled > 0 {
			s.Wait = duration(l.Wait(credits))
		}
		return s
	}
	need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed)
	switch retry := l.RetryAfter(credits, need, debt); retry {
	case 0:
	case bucket.Never:
		s.Allowed, s.RetryAfter = false, Never
	default:
		s.Allowed, s.RetryAfter = false, duration(retry)
	}
	return s
}

func duration(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}
