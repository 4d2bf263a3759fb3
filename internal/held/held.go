// Package held computes the tokens of a bucket from the answer of a store. Decorators use it.
package held

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Line is the content of a bucket over time: a straight line from the content in an answer up to full. It does not
// change after it is made. Times are in microseconds.
type Line struct {
	Policy, Key string
	Limit       store.Limit
	Least, Most int64 // credits, as far as the State says
	Sent        int64 // when the call was sent
	Received    int64 // when its reply arrived
}

// At returns the value of credits after elapsed if the bucket was not charged.
func (l *Line) At(credits, elapsed int64) int64 {
	b := bucket.Bucket{Tokens: credits, Unit: l.Limit.Unit}
	return bucket.Limit(l.Limit).Advance(b, elapsed).Tokens
}

// Credits returns the least and the most credits of the bucket of c according to its State. If no bucket can have
// this State, the least is above the most. It is the inverse of Charge.State.
func Credits(c *store.Charge, s *store.State) (least, most int64) {
	l := bucket.Limit(c.Limit)
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
