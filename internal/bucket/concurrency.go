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

// Held returns how many slots of a bucket of tokens are held, and 0 if l is no concurrency limit.
func (l Limit) Held(tokens int64) int64 {
	if !l.IsConcurrency() {
		return 0
	}
	return l.Capacity - tokens
}

// Loses reports whether a charge of need credits releases more slots than are held of a bucket of tokens.
func (l Limit) Loses(tokens, need int64) bool {
	return need < 0 && need != Reset && l.IsConcurrency() && l.Held(tokens) < -need
}

// KeepUntil returns until when b, a bucket under l, is kept. It was kept until then under the limit was. A bucket that goes
// to a concurrency limit or from one is full, so what it was before does not count.
func (l Limit) KeepUntil(was *Limit, then int64, b Bucket) int64 {
	if l.IsConcurrency() || was.IsConcurrency() {
		return l.FullAt(b)
	}
	return max(then, l.FullAt(b))
}

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
	return Bucket{l.Capacity - was.Held(b.Tokens), now}
}
