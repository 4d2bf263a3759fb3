// Package held tells what a bucket of a store holds, from what it answered. It is for decorators.
package held

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Line is what a bucket held when it answered, and with its limit what it can hold later: a straight line
// over time, up to full. It is not changed once it is made. Times are in microseconds.
type Line struct {
	Policy, Key string
	Limit       store.Limit
	Least, Most int64 // credits, as far as the State told
	Sent        int64 // when the call was sent that it is from
	Received    int64 // and when the reply was here
}

// At returns what credits have become after elapsed, if nobody charged the bucket.
func (l *Line) At(credits, elapsed int64) int64 {
	b := bucket.Bucket{Tokens: credits, Unit: l.Limit.Unit}
	return bucket.Limit(l.Limit).Advance(b, elapsed).Tokens
}

// Credits returns the least and the most that c's bucket holds by its State: none, the least above the
// most, if no bucket can have answered so. It is the inverse of Charge.State.
func Credits(c *store.Charge, s *store.State) (least, most int64) {
	l := bucket.Limit(c.Limit)
	// A bucket that lacks something of goal for some microseconds to come, rounded up.
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
