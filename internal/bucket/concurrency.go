package bucket

import "fmt"

// A concurrency limit is a Limit of slots, which do not refill: a holder takes a slot and gives it back. A slot is one
// credit, and the credits of a bucket are the slots that are free. They are below zero if more are held than the limit now
// has. A bucket of which slots are held is kept for ever.

// slotRetry is the time after which a slot may be free, in microseconds. Nothing better is known.
const slotRetry = 1_000_000

// NewConcurrency returns the limit of n slots. The error names the wrong field (Rate).
func NewConcurrency(n int64) (Limit, error) {
	if n < 1 || n > MaxSlots {
		return Limit{}, fmt.Errorf("Rate %d: must be from 1 to %d slots", n, int64(MaxSlots))
	}
	return Limit{Unit: 1, Capacity: n}, nil
}

// MaxSlots is the largest concurrency limit.
const MaxSlots = 1_000_000

// IsConcurrency reports whether NewConcurrency has made l.
func (l Limit) IsConcurrency() bool { return l.Refill == 0 && l.Period == nil && l.Unit == 1 }

// kind tells apart rates, quotas and concurrency limits. A bucket that goes from one kind to another is full.
func (l Limit) kind() int {
	switch {
	case l.IsQuota():
		return 1
	case l.IsConcurrency():
		return 2
	}
	return 0
}

// advanceSlots is Advance for a concurrency limit. The slots that are held stay held under a changed limit.
func (l Limit) advanceSlots(was *Limit, b Bucket, now int64) Bucket {
	if was.IsConcurrency() {
		return Bucket{l.Capacity - (was.Capacity - b.Tokens), now}
	}
	return Bucket{l.Capacity, now}
}
