package store

import "github.com/go-tokenbucket/ratelimit/internal/bucket"

// A line is what a bucket held when it answered, and with its limit what it can hold later: a straight line
// over time, up to full. It is not changed once it is made. Times are in microseconds.
type line struct {
	policy, key string
	limit       Limit
	stamp       uint64
	least, most int64 // credits, as far as the State told
	denied      int64 // when the refused call was sent that it goes back to
	sent        int64 // when the call was sent that it is from
	received    int64 // and when the reply was here
}

// answer fills s with the State of c at now, from a bucket that is not charged. It reports whether the
// bucket is short of what c needs, and whether all that is certain.
func (l *line) answer(c *Charge, now int64, s *State) (short, certain bool) {
	limit := bucket.Limit(l.limit)
	// The bucket answered when the call was sent or later, by a clock that runs faster by up to 0.1 %, and
	// each of the clocks was read to the microsecond only.
	elapsed := now - l.sent
	most := l.at(l.most, elapsed+elapsed/1000+2)
	short = limit.Grants(most, limit.Need(c.Cost), limit.Debt(c.MaxWait.Microseconds()), 1) == 0

	elapsed = now - l.received
	*s = c.State(l.at(l.least, elapsed), false)
	if s.Allowed == short {
		return short, false
	}
	return short, l.least == l.most || c.State(l.at(l.most, elapsed), false) == *s
}

// at returns what credits have become after elapsed, which nobody charged.
func (l *line) at(credits, elapsed int64) int64 {
	b := bucket.Bucket{Tokens: credits, Unit: l.limit.Unit}
	return bucket.Limit(l.limit).Advance(b, elapsed).Tokens
}

// credits returns the least and the most that c's bucket holds by its State: none, the least above the
// most, if no bucket can have answered so. It is the inverse of State.
func (c *Charge) credits(s *State) (least, most int64) {
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
	if !s.Allowed && s.RetryAfter != Never {
		low, high := until(l.Need(c.Cost)-l.Debt(c.MaxWait.Microseconds()), s.RetryAfter.Microseconds())
		least, most = max(least, low), min(most, high)
	}
	return least, most
}
