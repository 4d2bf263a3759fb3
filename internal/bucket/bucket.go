package bucket

import (
	"math"
	"math/bits"
	"time"
)

// Never is the time, in microseconds, until a charge that is never admitted.
const Never = -1

// The debts of charges that every bucket pays, with any number of tokens. AnyDebt is that of an owed charge. NoDebt is
// that of a settlement, which takes no more than the bucket holds.
const (
	AnyDebt = -1
	NoDebt  = -2
)

// Reset is the need of a charge that removes the bucket. No refund is as large.
const Reset = -4 * MaxCredits

// A Bucket is what is stored of a bucket beside the Limit of its last charge.
type Bucket struct {
	Tokens int64 // in credits of the Limit; negative in debt
	At     int64 // the latest time of a charge or, under a quota, the end of the period; in microseconds
}

// FullAt returns when b, a bucket under l, is full. It is never while a slot is held.
func (l Limit) FullAt(b Bucket) int64 {
	switch {
	case l.IsQuota():
		return b.At
	case l.IsConcurrency() && b.Tokens < l.Capacity:
		return math.MaxInt64
	}
	return b.At + l.ResetAfter(b.Tokens, 0)
}

// Rest returns how long the period of b, a bucket under l, goes on after now, in microseconds. It is 0 if l is no quota.
func (l Limit) Rest(b Bucket, now int64) int64 {
	if !l.IsQuota() {
		return 0
	}
	return b.At - now
}

// Age returns the time from then to now, at most the longest Duration. Any bucket refills in that time.
func Age(then, now int64) time.Duration {
	if now <= then {
		return 0
	}
	return time.Duration(min(uint64(now-then), math.MaxInt64/1000)) * time.Microsecond
}

// Advance returns b at the time now under l, refilled for the time since its last charge, which was under the limit was. The
// zero was stands for a bucket that was never charged, or that the store has forgotten: it is full. At never moves backwards: a
// time before it neither grants nor takes tokens.
//
// A bucket that was charged under another limit keeps its tokens. They are rounded down to a credit of the new unit,
// and cut to the new capacity. So a change of the limit neither refills a bucket nor leaves it stuck. A bucket whose limit
// was of another kind is full.
func (l Limit) Advance(was *Limit, b Bucket, now int64) Bucket {
	switch {
	case l.IsQuota():
		return l.advanceQuota(was, b, now)
	case l.Refill == 0:
		return l.advanceSlots(was, b, now)
	case was.Refill == 0: // it was never charged, or the limit was of another kind
		return Bucket{l.Capacity, now}
	}
	if was.Unit != l.Unit {
		b.Tokens = rescale(b.Tokens, was.Unit, l.Unit)
	}
	b.Tokens = min(b.Tokens, l.Capacity)
	if now <= b.At {
		return b
	}
	// 128 bits, because the time since the last refill has no bound, and neither has the product.
	hi, added := bits.Mul64(uint64(now-b.At), uint64(l.Refill))
	if hi != 0 || added >= uint64(l.Capacity-b.Tokens) {
		b.Tokens = l.Capacity
	} else {
		b.Tokens += int64(added)
	}
	b.At = now
	return b
}

// Reanchor returns b with its last refill moved to now if it is further ahead than the time to full. Only a clock
// that was set back causes that, such as the clock of a server after a failover. Without Reanchor, the bucket would
// not refill until the clock catches up. Reanchor grants no tokens. Use it only with a single clock: between clocks
// that differ, each switch would grant the difference.
//
// The period of a quota that ends too far ahead ends with the one that now is in.
func (l Limit) Reanchor(b Bucket, now int64) Bucket {
	if l.IsQuota() {
		if from, until := l.Period.Bounds(now); b.At-now > 2*(until-from) {
			b.At = min(b.At, until)
		}
		return b
	}
	if l.IsConcurrency() || b.At-now > l.Fill() {
		b.At = now
	}
	return b
}

// Ask returns the credits that a charge of cost tokens needs, and how far below zero the bucket may go for them. The
// longest wait is in microseconds. An owed charge and a settlement may need more than a full bucket holds. Their debts are
// AnyDebt and NoDebt. Their need is at most 2*MaxCredits, which leads to the deepest debt from any state. Only a charge with
// a cost can be owed or a settlement.
func (l Limit) Ask(cost, wait int64, owed, settles bool) (need, debt int64) {
	switch {
	case cost > 0 && owed:
		return mulDiv(cost, l.Unit, 1), AnyDebt
	case cost > 0 && settles:
		return mulDiv(cost, l.Unit, 1), NoDebt
	}
	return l.Need(cost), l.Debt(wait)
}

// Relimits reports whether a charge with this need puts the bucket under the limit of the charge, also if the charge is
// denied. Otherwise the store could forget the bucket when it is full under its old limit, and it would then be full
// under the new one. Looks and resets do not relimit.
func Relimits(need int64) bool { return need != 0 && need != Reset }

// Need returns the credits of cost tokens. It is negative for a refund. It is above Capacity if a full bucket cannot
// pay cost, and Reset for math.MinInt64.
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

// Debt returns the credits that l refills within wait microseconds. A charge that may wait this long can take the
// bucket this far below zero. A wait is cut to MaxWait, and the debt to MaxCredits.
//
// It is 0 for a quota: nobody reserves tokens of a period that has not begun. It is 0 for a concurrency limit, too.
func (l Limit) Debt(wait int64) int64 {
	if wait <= 0 || l.Refill == 0 {
		return 0
	}
	return min(mulDiv(min(wait, MaxWait), l.Refill, 1), MaxCredits)
}

// Grants returns how many of count charges of need credits a bucket of tokens can pay, one after another, to at most
// debt credits below zero. A charge that takes nothing is always granted, also by a bucket in debt. Charges with AnyDebt
// or NoDebt are always granted, too.
func (l Limit) Grants(tokens, need, debt, count int64) int64 {
	switch {
	case need <= 0 || debt < 0:
		return count
	case need > l.Capacity || tokens+debt < need:
		return 0
	case count == 1:
		return 1
	default:
		return min(count, quo(tokens+debt, need))
	}
}

// Charge returns tokens after count charges of need and debt, which Grants has granted. The result is at most Capacity,
// and at least MaxCredits below zero.
func (l Limit) Charge(tokens, need, debt, count int64) int64 {
	switch {
	case need < 0:
		return tokens + min(l.Capacity-tokens, mulDiv(-need, count, 1))
	case debt == NoDebt:
		return max(tokens-mulDiv(need, count, 1), min(tokens, 0))
	}
	hi, taken := bits.Mul64(uint64(need), uint64(count))
	if hi != 0 || taken > 2*MaxCredits {
		return -MaxCredits
	}
	return max(tokens-int64(taken), -MaxCredits)
}

// RetryAfter returns the time until a bucket of tokens can pay need credits, to at most debt below zero. It is in
// microseconds, rounded up: 0 if the bucket can pay now, and Never if it never can. rest is Limit.Rest.
func (l Limit) RetryAfter(tokens, need, debt, rest int64) int64 {
	switch {
	case need <= 0 || debt < 0 || tokens+debt >= need && need <= l.Capacity:
		return 0
	case need > l.Capacity:
		return Never
	default:
		return l.until(need-debt-tokens, rest)
	}
}

// ResetAfter returns the microseconds, rounded up, until a bucket of tokens is full, and to the end of the period of a
// quota. rest is Limit.Rest.
func (l Limit) ResetAfter(tokens, rest int64) int64 { return l.until(l.Capacity-tokens, rest) }

// until returns the time until so many credits have come, in microseconds, rounded up. For slots it is a guess.
func (l Limit) until(credits, rest int64) int64 {
	switch {
	case l.IsQuota():
		return rest
	case l.IsConcurrency():
		return min(credits, 1) * slotRetry
	}
	return ceilDiv(credits, l.Refill)
}

// Remaining returns the whole tokens in a bucket of tokens, 0 in debt.
func (l Limit) Remaining(tokens int64) int64 { return quo(max(0, tokens), l.Unit) }

// Wait returns the time until a bucket of tokens is out of debt, in microseconds, rounded up. rest is Limit.Rest.
func (l Limit) Wait(tokens, rest int64) int64 {
	if tokens >= 0 {
		return 0
	}
	return l.until(-tokens, rest)
}

// rescale converts tokens from one unit to another, rounded down, to a debt of at most MaxCredits.
func rescale(tokens, from, to int64) int64 {
	if tokens < 0 {
		return -min(mulDivUp(-tokens, to, from), MaxCredits)
	}
	return mulDiv(tokens, to, from)
}
