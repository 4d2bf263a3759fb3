package headers

import (
	"math"
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
	"github.com/go-tokenbucket/ratelimit/store"
)

// IETF writes RateLimit and RateLimit-Policy, of draft-ietf-httpapi-ratelimit-headers-11. They have a member for
// every policy that applied, except Hidden and Shadow ones:
//
//	RateLimit-Policy: "login";q=5;w=15
//	RateLimit: "login";r=0;t=3
//
// The package comment explains the parameters. X-RateLimit-Waited is as in [ratelimit.XRateLimit]. If a later draft
// renames something, IETF will follow it.
func IETF(h http.Header, d *ratelimit.Decision) {
	longest := int64(math.MaxInt64)
	if !d.Allowed {
		if after := d.RetryAfter(); after != ratelimit.Never {
			longest = rateheader.Seconds(after)
		}
	}
	// One string for both headers, in one allocation, as in [ratelimit.XRateLimit].
	var room [256]byte
	text := room[:0]
	for r := range d.Quotas() {
		text = appendQuotaPolicy(listNext(text, 0), d, r)
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

// The parameters of the draft, and their meaning, are only in the functions below.

// appendQuotaPolicy appends r's member of RateLimit-Policy (section 3.1 of the draft).
func appendQuotaPolicy(list []byte, d *ratelimit.Decision, r *ratelimit.Result) []byte {
	burst := burstOf(r.Limit)
	list = appendString(list, r.Policy)
	list = appendInteger(list, ";q=", burst)
	switch {
	case r.Limit.IsConcurrency():
		return append(list, `;qu="concurrent-requests"`...)
	case r.Limit.Period() != 0:
		return appendInteger(list, ";w=", periodOf(d, r))
	}
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
	case r.Limit.IsConcurrency():
		return appendInteger(list, ";r=", max(0, left))
	case left <= 0:
		list = appendInteger(list, ";r=", 0)
		return appendInteger(list, ";t=", min(rateheader.Seconds(r.Until(1)), longest))
	case r.Limit.Period() != 0:
		list = appendInteger(list, ";r=", left)
		return appendInteger(list, ";t=", min(rateheader.Seconds(r.ResetAfter), longest))
	default:
		list = appendInteger(list, ";r=", left)
		return appendInteger(list, ";t=", min(refills(r.Limit, left), longest))
	}
}

// periodOf returns the length of the period of a quota that the decision was in, in seconds: a month has 28 to 31 days.
func periodOf(d *ratelimit.Decision, r *ratelimit.Result) int64 {
	period, err := store.NewPeriod(r.Limit.Period(), r.Limit.Zone())
	if err != nil {
		return 0 // no Store has decided about such a Limit
	}
	return rateheader.PeriodLength(period, d.At, &r.State)
}

// refills returns how many seconds it takes to add that many tokens, rounded up, and at least 1. With a rate of 0
// it returns Per, in which no token is added.
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

// The functions below write Structured Fields (RFC 9651): lists of strings with integers as parameters.

// maxInteger is the greatest Integer of Structured Fields.
const maxInteger = 999_999_999_999_999

// listNext makes text ready for the next member of the list that begins at start.
func listNext(text []byte, start int) []byte {
	if len(text) > start {
		text = append(text, ", "...)
	}
	return text
}

// appendString appends the name of a policy. validName of package ratelimit allows no character that needs
// escaping.
func appendString(text []byte, name string) []byte {
	text = append(text, '"')
	text = append(text, name...)
	return append(text, '"')
}

func appendInteger(text []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(text, key...), min(n, maxInteger), 10)
}
