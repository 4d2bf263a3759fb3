package bucket

import "fmt"

// A quota is a Limit that refills all at once, when a period of the calendar begins. A token is one credit, nothing refills
// within the period, and the time of a bucket is the end of its period.

// NewQuota returns the limit of n tokens in each period of p. The error names the wrong field (Rate).
func NewQuota(n int64, p *Period) (Limit, error) {
	if n < 1 || n > MaxCredits {
		return Limit{}, fmt.Errorf("Rate %d: must be from 1 to %d tokens", n, int64(MaxCredits))
	}
	return Limit{Unit: 1, Capacity: n, Period: p}, nil
}

// IsQuota reports whether NewQuota has made l.
func (l Limit) IsQuota() bool { return l.Period != nil }

// Spares reports whether a charge under l leaves a bucket under the limit was as it is. It does if was is another kind of
// limit, and the charge gives back or cannot be refused: it is for what was charged before the limit changed. If it changed the
// kind back, the bucket would be full once more, and again with the next request.
func (l Limit) Spares(was *Limit, need, debt int64) bool {
	return (debt < 0 || need < 0 && need != Reset) && was.Unit != 0 && was.kind() != l.kind()
}

// advanceQuota is Advance for a quota. A period that has begun keeps its end, whatever the calendar says later. Replicas may
// disagree about the time zone, and each change of the end would grant a new quota. Only another unit may make it shorter. A
// bucket that had a rate before is full.
func (l Limit) advanceQuota(was *Limit, b Bucket, now int64) Bucket {
	goesOn := was.IsQuota() && now < b.At
	left := max(l.Capacity-(was.Capacity-b.Tokens), -MaxCredits)
	if goesOn && was.Period.Unit == l.Period.Unit { // without Bounds, which takes a microsecond
		return Bucket{left, b.At}
	}
	_, until := l.Period.Bounds(now)
	if goesOn {
		return Bucket{left, min(until, b.At)}
	}
	return Bucket{l.Capacity, until}
}
