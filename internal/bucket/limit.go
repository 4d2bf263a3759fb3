// Package bucket is the arithmetic of a token bucket. It has pure functions on integers, which take the time as a
// parameter.
//
// A token is worth Unit credits, and every microsecond adds Refill credits. Unit/Refill is the time per token in
// microseconds, in lowest terms. So 3 per second is exact: a token is 1,000,000 credits, and a microsecond adds 3. A
// request that comes after RetryAfter is always admitted.
//
// The same arithmetic runs in Redis as lua/take.lua, where every number is a double. So the bounds below keep all
// values and intermediate results within 2^53. Larger intermediate results occur only where a bound cuts them. Both
// implementations give the same answers bit for bit.
package bucket

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

const (
	// MaxCredits bounds the capacity of a bucket, and how deep its debt can be. A charge may have to wait for the sum
	// of the two, which stays within 2^53.
	MaxCredits = 1 << 52

	// MaxFill bounds the time from empty to full: 71 years, in microseconds. MaxWait bounds the time out of a debt
	// for a charge that waits: 35 years. A key expires after at most twice MaxFill plus MaxWait, which is a Unix time
	// within 2^53. An owed debt may take up to 142 years. Then the expiry may exceed 2^53, and is right to a few
	// microseconds; a millisecond is added to it.
	MaxFill = 1 << 51
	MaxWait = 1 << 50

	// minUnit is the least room for the credits of a token when a limit is approximated. A whole Refill leaves more than
	// half of it in use. Rounding that up by less than a credit slows the rate by less than 1e-9.
	minUnit = 2_000_000_000
)

// A Limit is a rate and a capacity in credits, a quota, or a concurrency limit. Make it with NewLimit, NewQuota or
// NewConcurrency.
type Limit struct {
	Unit     int64 // credits that one token is worth
	Refill   int64 // credits that one microsecond adds; 0 for quotas and concurrency limits
	Capacity int64 // credits of a full bucket

	// Period is that of a quota, which has a Unit of 1 and no Refill: see NewQuota. It is nil for a rate.
	Period *Period
}

// NewLimit returns the limit of rate tokens per per, with a capacity of burst tokens. A limit that is too fine for
// MaxCredits is approximated: slower by less than 1e-9, never faster. The error names each wrong field (Rate, Per,
// Burst) and a value that would fit.
func NewLimit(rate int64, per time.Duration, burst int64) (Limit, error) {
	var faults []error
	if rate < 1 || rate > MaxCredits {
		faults = append(faults, fmt.Errorf("Rate %d: must be from 1 to %d tokens", rate, int64(MaxCredits)))
	}
	if per <= 0 {
		faults = append(faults, fmt.Errorf("Per %v: must be longer than 0", per))
	}
	if burst < 1 || burst > MaxCredits {
		faults = append(faults, fmt.Errorf("Burst %d: must be from 1 to %d tokens", burst, int64(MaxCredits)))
	}
	if faults != nil {
		return Limit{}, errors.Join(faults...)
	}

	// 1,000 × rate tokens per per in nanoseconds is the same rate per microsecond.
	g := gcd(1000*rate, int64(per))
	l := Limit{Unit: int64(per) / g, Refill: 1000 * rate / g}

	exact := MaxCredits / l.Unit
	rounded := min(MaxCredits/(minUnit+1), mulDiv(l.Refill, MaxCredits, l.Unit))
	if most := min(max(exact, rounded), mulDiv(MaxFill, l.Refill, l.Unit)); most == 0 {
		return Limit{}, fmt.Errorf("Per %v: too long for a rate of %d: a token must come within 71 years", per, rate)
	} else if burst > most {
		return Limit{}, fmt.Errorf("Burst %d: does not fit a rate of %d per %v: must be at most %d", burst, rate, per, most)
	}
	if burst > exact {
		// Rounded up: a larger unit is a slower rate, and the limit must not be exceeded.
		refill := mulDiv(l.Refill, MaxCredits/burst, l.Unit)
		l = Limit{Unit: mulDivUp(l.Unit, refill, l.Refill), Refill: refill}
	}
	l.Capacity = burst * l.Unit
	if l.Refill > l.Capacity {
		return Limit{}, fmt.Errorf("Burst %d: refills within a microsecond at %d per %v: must be at least %d", burst, rate, per, (l.Refill-1)/l.Unit+1)
	}
	return l, nil
}

// Valid reports whether NewLimit, Share, NewQuota or NewConcurrency can have made l.
func (l Limit) Valid() bool {
	switch {
	case l.IsQuota():
		return l.Unit == 1 && l.Refill == 0 && l.Capacity >= 1 && l.Capacity <= MaxCredits
	case l.IsConcurrency():
		return l.Capacity >= 1 && l.Capacity <= MaxSlots
	}
	return l.Unit >= 1 && l.Refill >= 1 && l.Capacity >= l.Unit && l.Capacity <= MaxCredits && l.Refill <= l.Capacity
}

// Fill returns the time from empty to full in microseconds, rounded up. It is the longest period of a quota. It is not for
// concurrency limits.
func (l Limit) Fill() int64 {
	if l.IsQuota() {
		return longest[l.Period.Unit]
	}
	return l.until(l.Capacity, 0)
}

// Share returns one of n equal parts of l. A token costs n times as many credits, so the rate and the burst are an
// n-th. The share has room for at least tokens whole tokens if l has, because otherwise such a cost would never be
// allowed. The share is larger if a token would become too large for MaxCredits and MaxFill.
func (l Limit) Share(n, tokens int64) Limit {
	tokens = max(1, min(tokens, l.Capacity/l.Unit))
	if l.Refill == 0 {
		l.Capacity = max(l.Capacity/n, tokens)
		return l
	}
	dearest := min(MaxCredits, mulDiv(MaxFill, l.Refill, 1)) / tokens
	unit := min(mulDiv(l.Unit, n, 1), dearest)
	return Limit{Unit: unit, Refill: l.Refill, Capacity: max(l.Capacity, tokens*unit)}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mulDiv returns a*b/c rounded down, for a, b >= 0 and c > 0. The result is at most 2*MaxCredits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return div(hi, lo, c)
}

// mulDivUp is mulDiv rounded up.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	return div(hi+carry, lo, c)
}

func div(hi, lo uint64, c int64) int64 {
	if hi >= uint64(c) {
		return 2 * MaxCredits
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, 2*MaxCredits))
}

// quo returns a/b rounded down, for a from 0 to 2^53 and b > 0. Like the script it divides doubles. The result is
// exact, because the distance of the quotient to the next whole number is larger than its rounding. It is faster than
// an integer division.
func quo(a, b int64) int64 { return int64(float64(a) / float64(b)) }

// ceilDiv is quo rounded up.
func ceilDiv(a, b int64) int64 {
	if b == 1 {
		return a // true for all rates that divide a microsecond
	}
	q := quo(a, b)
	if q*b != a {
		q++
	}
	return q
}
