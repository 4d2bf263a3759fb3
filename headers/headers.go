// Package headers has formats of rate limit headers besides X-RateLimit, which package ratelimit has and which is its
// default: choose them with [ratelimit.Config.Headers].
package headers

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// None writes nothing, for APIs that do not publish their limits. A denial still has Retry-After.
func None(http.Header, *ratelimit.Decision) {}

// Join writes the headers of all fs, in their order: for example [IETF] beside [ratelimit.XRateLimit], while clients move
// from one to the other. Where two write the same header, the last one counts: [ratelimit.XRateLimit] and [DeltaSeconds]
// differ in X-RateLimit-Reset, and [Spring] may count in parts of a token. It panics without fs, or if one is nil.
func Join(fs ...ratelimit.HeaderFunc) ratelimit.HeaderFunc {
	if len(fs) == 0 {
		panic("headers: Join: must have at least one HeaderFunc; see None")
	}
	for _, f := range fs {
		if f == nil {
			panic("headers: Join: no HeaderFunc may be nil")
		}
	}
	fs = slices.Clone(fs)
	return func(h http.Header, d *ratelimit.Decision) {
		for _, f := range fs {
			f(h, d)
		}
	}
}

// DeltaSeconds is [ratelimit.XRateLimit] for clients that expect X-RateLimit-Reset in seconds from now, rounded up: 0
// if the bucket is full. They need no clock that is right.
func DeltaSeconds(h http.Header, d *ratelimit.Decision) {
	if r := d.Tightest(); r != nil {
		rateheader.SetXRateLimit(h, make([]string, 3), burstOf(r.Limit), r.Remaining, int64((r.ResetAfter+time.Second-1)/time.Second))
		rateheader.SetWaited(h, d.VisibleWait())
	}
}

// Exposed are the names of all headers by which limiters report limits, in any format and in
// denials. A script of another origin can read none of them unless Access-Control-Expose-Headers lists it:
//
//	cors.Options{ExposedHeaders: headers.Exposed}
var Exposed = []string{
	"RateLimit", "RateLimit-Policy", "Retry-After",
	"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Waited",
	"X-RateLimit-Replenish-Rate", "X-RateLimit-Burst-Capacity", "X-RateLimit-Requested-Tokens",
	"X-RateLimit-Shadow",
}

// burstOf returns the capacity of l with its default. With a rate of 0 there is none.
func burstOf(l ratelimit.Limit) int64 {
	if l.Rate == 0 {
		return 0
	}
	return cmp.Or(l.Burst, l.Rate)
}
