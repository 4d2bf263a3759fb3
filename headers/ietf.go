package headers

import (
	"math"
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// IETF writes the headers of draft-ietf-httpapi-ratelimit-headers-11, with every policy that applied and is not Hidden.
// A later draft may rename what is in them, and then IETF will follow it.
//
//	RateLimit-Policy: "login";q=5;w=15
//	RateLimit: "login";r=0;t=3
//
// q is the burst, and w in how many seconds an empty bucket is full. r is how many tokens are left, and none of
// a policy that denied. t is in seconds: r requests spread over t are allowed, and go on being so. Where r is 0,
// t is when the next token comes, or in a denial when the same request would be allowed; there no t is longer
// than Retry-After. A request whose cost is above the burst never is, and its policy has no t.
//
// Requests that cost more than 1 use up r faster, since the units are tokens. Where stacked limiters have policies of
// one name, the tighter is shown, as by [ratelimit.Decision.Tightest]. What is not known, because the store is away, is
// not in RateLimit. X-RateLimit-Waited is as in [ratelimit.XRateLimit].
func IETF(h http.Header, d *ratelimit.Decision) {
	longest := int64(math.MaxInt64)
	if !d.Allowed {
		if after := d.RetryAfter(); after != ratelimit.Never {
			longest = rateheader.Seconds(after)
		}
	}
	// One string of both, as in [ratelimit.XRateLimit].
	var room [256]byte
	text := room[:0]
	for r := range d.Quotas() {
		text = appendQuotaPolicy(listNext(text, 0), r)
	}
	policies := len(text)
	if policies == 0 {
		return
	}
	for r := range d.Quotas() {
		if r.Known() {
			text = appendServiceLimit(listNext(text, policies), r, longest)
		}
	}
	all := string(text)
	values := make([]string, 2)
	values[0], values[1] = all[:policies], all[policies:]
	h[rateheader.RateLimitPolicy] = values[0:1:1]
	if len(all) > policies {
		h[rateheader.RateLimit] = values[1:2:2]
	}
	rateheader.SetWaited(h, d.VisibleWait())
}

// The names of parameters, and what they mean, are the draft's, and are here alone.

// appendQuotaPolicy appends r's member of RateLimit-Policy (section 3.1 of the draft).
func appendQuotaPolicy(list []byte, r *ratelimit.Result) []byte {
	burst := burstOf(r.Limit)
	list = appendString(list, r.Policy)
	list = appendInteger(list, ";q=", burst)
	return appendInteger(list, ";w=", refills(r.Limit, burst))
}

// appendServiceLimit appends r's member of RateLimit (section 4.1 of the draft). Its window is at most longest.
func appendServiceLimit(list []byte, r *ratelimit.Result, longest int64) []byte {
	list = appendString(list, r.Policy)
	switch left := min(r.Remaining, burstOf(r.Limit)); { // a stand-in might have more left than all of Limit
	case r.RetryAfter == ratelimit.Never:
		return appendInteger(list, ";r=", 0)
	case !r.Allowed:
		list = appendInteger(list, ";r=", 0)
		return appendInteger(list, ";t=", min(rateheader.Seconds(r.RetryAfter), longest))
	case left <= 0:
		list = appendInteger(list, ";r=", 0)
		return appendInteger(list, ";t=", min(rateheader.Seconds(r.Until(1)), longest))
	default:
		list = appendInteger(list, ";r=", left)
		return appendInteger(list, ";t=", min(refills(r.Limit, left), longest))
	}
}

// refills returns in how many seconds that many tokens are added: rounded up, and at least 1. With a rate of 0 that
// is the time in which none is added.
func refills(l ratelimit.Limit, tokens int64) int64 {
	if l.Rate == 0 {
		return rateheader.Seconds(max(0, l.Per))
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(l.Per))
	if hi >= uint64(l.Rate) {
		return maxInteger
	}
	nanoseconds, part := bits.Div64(hi, lo, uint64(l.Rate))
	whole := nanoseconds / uint64(time.Second)
	if part > 0 || nanoseconds%uint64(time.Second) > 0 {
		whole++
	}
	return max(1, int64(whole))
}

// What follows writes Structured Fields (RFC 9651), of which lists of strings with integers are the least part.

// maxInteger is the greatest Integer of Structured Fields.
const maxInteger = 999_999_999_999_999

// listNext makes text ready for the next member of the list that begins at start.
func listNext(text []byte, start int) []byte {
	if len(text) > start {
		text = append(text, ", "...)
	}
	return text
}

// appendString appends the name of a policy, in which validName lets nothing that would have to be escaped.
func appendString(text []byte, name string) []byte {
	text = append(text, '"')
	text = append(text, name...)
	return append(text, '"')
}

func appendInteger(text []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(text, key...), min(n, maxInteger), 10)
}
