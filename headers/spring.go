package headers

import (
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// Spring writes the headers of Spring Cloud Gateway's RedisRateLimiter, for the policy that is
// [ratelimit.Decision.Tightest]. If the rate per second is not a whole number, all four count parts of a token.
//
//	X-RateLimit-Remaining         how many tokens are left
//	X-RateLimit-Replenish-Rate    how many are added each second
//	X-RateLimit-Burst-Capacity    the burst
//	X-RateLimit-Requested-Tokens  how many the request cost
//	X-RateLimit-Waited            as in ratelimit.XRateLimit
func Spring(h http.Header, d *ratelimit.Decision) {
	r := d.Tightest()
	if r == nil {
		return
	}
	parts, rate := perSecond(r.Limit)
	burst := burstOf(r.Limit)
	var room [96]byte
	text := strconv.AppendInt(room[:0], scaled(min(r.Remaining, burst), parts), 10)
	remaining := len(text)
	text = strconv.AppendInt(text, rate, 10)
	replenish := len(text)
	text = strconv.AppendInt(text, scaled(burst, parts), 10)
	capacity := len(text)
	text = strconv.AppendInt(text, scaled(r.Cost, parts), 10)
	all := string(text)
	values := make([]string, 4)
	values[0], values[1], values[2], values[3] = all[:remaining], all[remaining:replenish], all[replenish:capacity], all[capacity:]

	// X-RateLimit-Limit and -Reset are in whole tokens. They would not fit to a Remaining in parts.
	if h[rateheader.XLimit] != nil && parts > 1 {
		delete(h, rateheader.XLimit)
		delete(h, rateheader.XReset)
	}
	h[rateheader.XRemaining] = values[0:1:1]
	h[rateheader.SpringRate] = values[1:2:2]
	h[rateheader.SpringBurst] = values[2:3:3]
	h[rateheader.SpringRequested] = values[3:4:4]
	rateheader.SetWaited(h, d.VisibleWait())
}

// maxScaled is the greatest number up to which a double holds every integer.
const maxScaled = 1 << 53

// perSecond returns into how many parts a token must be divided so that the rate is a whole number of parts per
// second, and that number.
func perSecond(l ratelimit.Limit) (parts, rate int64) {
	if l.Rate <= 0 || l.Per <= 0 {
		return 1, 0
	}
	// The rate is the fraction of Rate × 10^9 tokens and Per nanoseconds. In lowest terms, its denominator is the
	// number of parts that makes it whole.
	hi, lo := bits.Mul64(uint64(l.Rate), uint64(time.Second))
	per := uint64(l.Per)
	fewest := per / gcd(per, bits.Rem64(hi, lo, per))
	tokens := mulDiv(uint64(l.Rate), uint64(time.Second), per) // rounded down
	most := uint64(maxScaled) / max(1, uint64(burstOf(l)), min(tokens+1, maxScaled))
	k := max(1, min(fewest, most))
	// Rate × k fits into 128 bits, but Rate × k × 10^9 may not. So multiply whole tokens and the rest apart.
	rest := bits.Rem64(hi, lo, per)
	hi, lo = bits.Mul64(rest, k)
	part, _ := bits.Div64(hi, lo, per) // rest is below per, and so the quotient below k
	return int64(k), int64(min(scaledUint(tokens, k)+part, maxScaled))
}

// scaled returns n × parts, but at most 2^53.
func scaled(n, parts int64) int64 { return int64(scaledUint(uint64(max(0, n)), uint64(parts))) }

func scaledUint(n, parts uint64) uint64 {
	hi, lo := bits.Mul64(n, parts)
	if hi > 0 {
		return maxScaled
	}
	return min(lo, maxScaled)
}

// mulDiv returns a × b / c rounded down, but at most 2^53.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return maxScaled
	}
	q, _ := bits.Div64(hi, lo, c)
	return min(q, maxScaled)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
