// Package rateheader has the common part of all formats of rate limit headers: their names, and the merging of two
// sets.
//
// A response can get such headers from stacked limiters, from another library's limiter, or from the server behind a
// proxy. A client could not use two headers of one name.
package rateheader

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// The canonical names of the headers.
const (
	XLimit     = "X-Ratelimit-Limit"
	XRemaining = "X-Ratelimit-Remaining"
	XReset     = "X-Ratelimit-Reset"
	XWaited    = "X-Ratelimit-Waited"
	XShadow    = "X-Ratelimit-Shadow"

	RateLimit       = "Ratelimit"
	RateLimitPolicy = "Ratelimit-Policy"

	SpringRate      = "X-Ratelimit-Replenish-Rate"
	SpringBurst     = "X-Ratelimit-Burst-Capacity"
	SpringRequested = "X-Ratelimit-Requested-Tokens"

	retryAfter = "Retry-After"
)

// NoReset is the reset of a concurrency limit: nobody knows when the requests that hold its slots end.
const NoReset = -1

// SetXRateLimit writes X-RateLimit-Limit, -Remaining and, unless it is NoReset, -Reset. values must have room for three.
func SetXRateLimit(h http.Header, values []string, burst, left, reset int64) {
	// All three strings share one string, so that a response needs one allocation instead of six.
	var room [64]byte
	text := strconv.AppendInt(room[:0], burst, 10)
	limit := len(text)
	text = strconv.AppendInt(text, left, 10)
	remaining := len(text)
	text = strconv.AppendInt(text, reset, 10)
	all := string(text)
	values[0], values[1], values[2] = all[:limit], all[limit:remaining], all[remaining:]

	// Remaining is in tokens. A remaining value in the format of Spring may be in parts of tokens.
	if burst := h[SpringBurst]; len(burst) > 0 && burst[0] != values[0] {
		delete(h, SpringBurst)
		delete(h, SpringRate)
		delete(h, SpringRequested)
	}
	h[XLimit] = values[0:1:1]
	h[XRemaining] = values[1:2:2]
	if h[XReset] = values[2:3:3]; reset == NoReset {
		delete(h, XReset) // also that of a limiter outside
	}
}

// SetWaited writes how long a request waited, if it waited.
func SetWaited(h http.Header, waited time.Duration) {
	if waited > 0 {
		h.Set("X-RateLimit-Waited", strconv.FormatFloat(waited.Seconds(), 'f', 3, 64))
	}
}

// Seconds returns d in whole seconds, rounded up. It is at least 1, because some clients retry at once after a 0.
func Seconds(d time.Duration) int64 {
	return max(1, int64((d-1)/time.Second)+1)
}

// PeriodLength returns how long the period of a quota is that a decision at a time was in, in seconds: a month has 28 to 31
// days. The Store decides by its own clock which period it is. So the clocks may differ by up to half an hour.
func PeriodLength(p *store.Period, at time.Time, s *store.State) int64 {
	if s.ResetAfter > 0 && !s.Blocked { // a block may hide the end of the period
		at = at.Add(s.ResetAfter - 30*time.Minute)
	}
	from, until := p.Bounds(at.UnixMicro())
	return Seconds(time.Duration(until-from) * time.Microsecond)
}
