package ratelimit

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A HeaderFunc writes what a decision says into the header of its response, before the handler or the
// denial does. Where limiters are stacked it is called by each, with the results of the outer ones too:
// it sets headers and does not add to them. What others have set outside of all limiters is merged with that
// afterwards, as MergeHeaders does. It is not called if no policy applied.
type HeaderFunc func(h http.Header, d *Decision)

// NoHeaders writes nothing: for APIs that do not tell their limits. A denial still has Retry-After.
func NoHeaders(http.Header, *Decision) {}

// Dialects writes the headers of all fs, in their order: of IETF beside XRateLimit for example, while clients
// move from one to the other. XRateLimit and XRateLimitDelta differ in X-RateLimit-Reset, which is as the last of
// them has it; where Spring counts in parts of a token, the last of it and these is the one that is seen. It
// panics without fs, or if one is nil.
func Dialects(fs ...HeaderFunc) HeaderFunc {
	if len(fs) == 0 {
		panic("ratelimit: Dialects: must have at least one HeaderFunc; see NoHeaders")
	}
	for _, f := range fs {
		if f == nil {
			panic("ratelimit: Dialects: no HeaderFunc may be nil")
		}
	}
	fs = slices.Clone(fs)
	return func(h http.Header, d *Decision) {
		for _, f := range fs {
			f(h, d)
		}
	}
}

// ExposedHeaders are the names of all headers by which this package tells limits, in any dialect and in
// denials. A script of another origin can read none of them unless Access-Control-Expose-Headers lists it:
//
//	cors.Options{ExposedHeaders: ratelimit.ExposedHeaders}
var ExposedHeaders = []string{
	"RateLimit", "RateLimit-Policy", "Retry-After",
	"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Waited",
	"X-RateLimit-Replenish-Rate", "X-RateLimit-Burst-Capacity", "X-RateLimit-Requested-Tokens",
	"X-RateLimit-Shadow",
}

// setDenied writes what every denial has, whatever the HeaderFunc: when to come back, unless that is
// never, and that a cache must not keep it (RFC 6585, section 4).
func setDenied(h http.Header, d *Decision) {
	h.Del("Retry-After")
	if after := d.RetryAfter(); after != Never {
		h.Set("Retry-After", strconv.FormatInt(seconds(after), 10))
	}
	setNoStore(h)
}

// setNoStore keeps every cache from storing the answer: a denial that is stored denies all. Something outside of
// the limiter may have set what some caches obey instead, for the answers that are served inside.
func setNoStore(h http.Header) {
	for name := range h {
		if outranksCacheControl(name) {
			delete(h, name)
		}
	}
	h["Cache-Control"] = []string{"no-store"}
}

// outranksCacheControl reports whether a cache may obey the header name rather than Cache-Control. These are
// X-Accel-Expires (nginx), Surrogate-Control, Edge-Control, Expires (HTTP/1.0), and all that end in Cache-Control, such
// as CDN-Cache-Control (RFC 9213), Akamai's and LiteSpeed's. A Cache-Control that is written in another case is one,
// too: it has its own place in the map.
func outranksCacheControl(name string) bool {
	const suffix = "cache-control"
	switch n := len(name); {
	case n < len("expires"):
		return false
	case name[n-1]|0x20 == 'l':
		return n >= len(suffix) && strings.EqualFold(name[n-len(suffix):], suffix) && name != "Cache-Control" ||
			strings.EqualFold(name, "Surrogate-Control") || strings.EqualFold(name, "Edge-Control")
	case name[n-1]|0x20 == 's':
		return strings.EqualFold(name, "X-Accel-Expires") || strings.EqualFold(name, "Expires")
	}
	return false
}

// setWaited writes how long a request waited, if it did: for each HeaderFunc of ours that tells limits.
func setWaited(h http.Header, d *Decision) {
	if d.Waited > 0 {
		h.Set("X-RateLimit-Waited", strconv.FormatFloat(d.Waited.Seconds(), 'f', 3, 64))
	}
}

// seconds returns d in whole seconds, rounded up, and at least 1: some clients retry a 0 at once.
func seconds(d time.Duration) int64 {
	return max(1, int64((d-1)/time.Second)+1)
}

// room returns room for n header values: that in d, which costs no allocation, for the first dialect that asks.
func (d *Decision) room(n int) []string {
	if n <= len(d.values) && d.values[0] == "" {
		return d.values[:n:n]
	}
	return make([]string, n)
}
