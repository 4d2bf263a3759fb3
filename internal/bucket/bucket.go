package bucket

import (
	"math"
	"math/bits"
	"time"
)

// Never is the number of microseconds until a charge that can never be admitted.
const Never = -1

// AnyDebt is the debt of a charge that is owed: every bucket pays it, whatever it holds.
const AnyDebt = -1

// Reset is the need of a charge that removes the bucket. No refund needs as much.
const Reset = -4 * MaxCredits

// A Bucket is what is stored of a bucket. The zero value is a bucket that was never charged, or was
// forgotten since: it is full.
type Bucket struct {
	Tokens     int64 // in credits of Unit a token; below zero in debt
	Unit       int64 // of the Limit it was last charged under; 0 in the zero value
	LastRefill int64 // the latest time that a charge of it has seen, in microseconds
}

// Age returns the time since LastRefill, at most what a Duration holds, in which any bucket refills.
func (b Bucket) Age(now int64) time.Duration {
	if now <= b.LastRefill {
		return 0
	}
	return time.Duration(min(uint64(now-b.LastRefill), math.MaxInt64/1000)) * time.Microsecond
}

// Advance returns b as it stands at now under l, refilled for the time since LastRefill. LastRefill
// never moves backwards: a time before it neither grants nor drains anything.
//
// A bucket charged under another limit keeps its tokens, rounded down to a credit of the new unit and
// cut to the new capacity, so that changing a limit neither refills a bucket nor leaves it stuck.
func (l Limit) Advance(b Bucket, now int64) Bucket {
	if b.Unit == 0 {
		return Bucket{Tokens: l.Capacity, Unit: l.Unit, LastRefill: now}
	}
	if b.Unit != l.Unit {
		b.Tokens, b.Unit = rescale(b.Tokens, b.Unit, l.Unit), l.Unit
	}
	b.Tokens = min(b.Tokens, l.Capacity)
	if now <= b.LastRefill {
		return b
	}
	// In 128 bits: the time since the last refill is unbounded, and the product with it.
	hi, added := bits.Mul64(uint64(now-b.LastRefill), uint64(l.Refill))
	if hi != 0 || added >= uint64(l.Capacity-b.Tokens) {
		b.Tokens = l.Capacity
	} else {
		b.Tokens += int64(added)
	}
	b.LastRefill = now
	return b
}

// Reanchor returns b with its last refill moved to now if it lies further ahead than the time to
// full. Only a clock that was set back explains that, such as that of a failed-over server, and
// without it the bucket would stay frozen until the clock catches up. Nothing is granted. It is right
// only for a single clock: between clocks that disagree, each switch would grant the difference.
func (l Limit) Reanchor(b Bucket, now int64) Bucket {
	if b.LastRefill-now > l.Fill() {
		b.LastRefill = now
	}
	return b
}

// Ask returns what a charge of cost tokens asks of a bucket: the credits that it needs, and how far below zero
// it may go for them, to wait for at most that many microseconds. What is owed is not bounded by what a full
// bucket holds, and takes AnyDebt; 2*MaxCredits of it leave the deepest debt, whatever there was. A refund or
// a look cannot be owed.
func (l Limit) Ask(cost, wait int64, owed bool) (need, debt int64) {
	if owed && cost > 0 {
		return mulDiv(cost, l.Unit, 1), AnyDebt
	}
	return l.Need(cost), l.Debt(wait)
}

// Relimits reports whether a charge that asks this of a bucket puts it under the charge's limit, also where it takes
// nothing because its call is refused. Otherwise a bucket could be forgotten when it is full under its old limit, and
// would then be full under the new one. A look and a reset do not; AnyDebt without a need is a look that does.
func Relimits(need, debt int64) bool { return need != 0 && need != Reset || debt < 0 }

// Need returns the credits that cost tokens are worth: negative for a refund, more than Capacity for a
// cost that no full bucket could pay, and Reset for math.MinInt64.
func (l Limit) Need(cost int64) int64 {
	if cost == math.MinInt64 {
		return Reset
	}
	if cost >= 0 {
		if hi, need := bits.Mul64(uint64(cost), uint64(l.Unit)); hi == 0 && need <= uint64(l.Capacity) {
			return int64(need)
		}
		return l.Capacity + 1
	}
	if hi, refund := bits.Mul64(uint64(-cost), uint64(l.Unit)); hi == 0 && refund <= 2*MaxCredits {
		return -int64(refund)
	}
	return -2 * MaxCredits // fills a bucket from any debt
}

// Debt returns the credits that l refills within wait microseconds: how far below zero a charge may go
// that is ready to wait so long. A wait counts as MaxWait if it is longer, and a debt is at most
// MaxCredits.
func (l Limit) Debt(wait int64) int64 {
	if wait <= 0 {
		return 0
	}
	return min(mulDiv(min(wait, MaxWait), l.Refill, 1), MaxCredits)
}

// Grants returns how many of count charges of need credits a bucket of tokens can pay, one after
// another, going at most debt credits below zero. A charge that takes nothing is always granted, also
// by a bucket in debt, and so is one that may take AnyDebt.
func (l Limit) Grants(tokens, need, debt, count int64) int64 {
	switch {
	case need <= 0 || debt == AnyDebt:
		return count
	case need > l.Capacity || tokens+debt < need:
		return 0
	case count == 1:
		return 1
	default:
		return min(count, quo(tokens+debt, need))
	}
}

// Charge returns tokens after count charges of need credits that Grants granted: less, or after a
// refund more, but never above Capacity, nor less than MaxCredits below zero.
func (l Limit) Charge(tokens, need, count int64) int64 {
	if need < 0 {
		return tokens + min(l.Capacity-tokens, mulDiv(-need, count, 1))
	}
	hi, taken := bits.Mul64(uint64(need), uint64(count))
	if hi != 0 || taken > 2*MaxCredits {
		return -MaxCredits
	}
	return max(tokens-int64(taken), -MaxCredits)
}

// RetryAfter returns the microseconds, rounded up, until a bucket of tokens could pay need credits
// going at most debt below zero: 0 if it can now, Never if it never can.
func (l Limit) RetryAfter(tokens, need, debt int64) int64 {
	switch {
	case need <= 0 || debt == AnyDebt || tokens+debt >= need && need <= l.Capacity:
		return 0
	case need > l.Capacity:
		return Never
	default:
		return ceilDiv(need-debt-tokens, l.Refill)
	}
}

// ResetAfter returns the microseconds, rounded up, until a bucket of tokens is full.
func (l Limit) ResetAfter(tokens int64) int64 { return ceilDiv(l.Capacity-tokens, l.Refill) }

// Remaining returns the whole tokens in a bucket of tokens, none in debt.
func (l Limit) Remaining(tokens int64) int64 { return quo(max(0, tokens), l.Unit) }

// Wait returns the microseconds, rounded up, until a bucket of tokens is out of debt.
func (l Limit) Wait(tokens int64) int64 {
	if tokens >= 0 {
		return 0
	}
	return ceilDiv(-tokens, l.Refill)
}

// rescale returns tokens of unit from as tokens of unit to, rounded down, a debt at most MaxCredits.
func rescale(tokens, from, to int64) int64 {
	if tokens < 0 {
		return -min(mulDivUp(-tokens, to, from), MaxCredits)
	}
	return mulDiv(tokens, to, from)
}
