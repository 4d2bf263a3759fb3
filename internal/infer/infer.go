// Package infer infers the tokens of a bucket from the answer of a store, for decorators, which do not see the bucket. It is
// not for slots.
package infer

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Content is the content of a bucket over time: from the credits that an answer shows, it refills until the bucket is full.
// A Content does not change after it is made. Times are in microseconds.
type Content struct {
	Policy, Key string
	Limit       store.Limit
	Least, Most int64 // credits, as far as the State says
	Rest        int64 // from the reply to the end of a quota's period, or of a block that hides it
	Sent        int64 // when the call was sent
	Received    int64 // when its reply arrived
}

// At returns the value of credits after elapsed if the bucket was not charged.
func (c *Content) At(credits, elapsed int64) int64 {
	if !c.Limit.IsQuota() {
		return c.Limit.Advance(&c.Limit, bucket.Bucket{Tokens: credits}, elapsed).Tokens
	}
	if elapsed >= c.Rest {
		return c.Limit.Capacity
	}
	return credits
}

// Blocked returns how much longer the bucket of c is blocked according to its State, in microseconds, and the credits
// that it may hold. The wait for tokens may hide the block: left is 0 if it is not certain. The block may hide the tokens:
// there may be more than most, but that makes no difference while the bucket is blocked.
func Blocked(c *store.Charge, s *store.State) (left, least, most int64) {
	l := c.Limit
	retry, reset := s.RetryAfter.Microseconds(), s.ResetAfter.Microseconds()
	if !s.Blocked || s.RetryAfter == store.Never || retry > reset {
		return 0, 0, 0
	}
	if l.IsQuota() {
		switch {
		case s.Allowed:
			return retry, -bucket.MaxCredits, l.Capacity
		case retry == reset: // perhaps to the end of its period
			return 0, 0, 0
		default:
			return retry, l.Need(c.Cost), l.Capacity
		}
	}
	least = l.Capacity - l.Refill*min(reset, (l.Capacity+bucket.MaxCredits)/l.Refill) // no debt is deeper
	if !s.Allowed {
		if need, debt := l.Ask(c.Cost, c.MaxWait.Microseconds(), c.Owed, c.Settles); l.RetryAfter(least, need, debt, 0) >= retry {
			return 0, 0, 0
		}
	}
	return retry, least, least + l.Refill - 1
}

// Credits returns the least and the most credits of the bucket of c according to its State, which is not Blocked. If no
// bucket can have this State, the least is above the most. It is the inverse of Charge.Fill.
func Credits(c *store.Charge, s *store.State) (least, most int64) {
	l := c.Limit
	if l.IsQuota() {
		if s.Remaining > 0 {
			return s.Remaining, s.Remaining
		}
		return -bucket.MaxCredits, 0
	}
	// The bucket reaches goal in a number of microseconds, which is rounded up.
	until := func(goal, microseconds int64) (least, most int64) {
		least = goal - microseconds*l.Refill
		return least, least + l.Refill - 1
	}
	least, most = until(l.Capacity, s.ResetAfter.Microseconds())
	most = min(most, l.Capacity, s.Remaining*l.Unit+l.Unit-1)
	if s.Remaining > 0 {
		least = max(least, s.Remaining*l.Unit)
	}
	if !s.Allowed && s.RetryAfter != store.Never {
		low, high := until(l.Need(c.Cost)-l.Debt(c.MaxWait.Microseconds()), s.RetryAfter.Microseconds())
		least, most = max(least, low), min(most, high)
	}
	return least, most
}
