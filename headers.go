package ratelimit

import (
	"net/http"
	"strconv"
	"time"
)

// A HeaderFunc writes what a decision says into the header of its response, before the handler or the
// denial does. Where limiters are stacked it is called by each, with the results of the outer ones too:
// it sets headers and does not add to them. It is not called if no policy applied.
type HeaderFunc func(h http.Header, d *Decision)

// XRateLimit writes the headers that most APIs have, for the policy that is Tightest:
//
//	X-RateLimit-Limit      the burst: how many requests can be made at once
//	X-RateLimit-Remaining  how many can be made now
//	X-RateLimit-Reset      when that is the burst again, in seconds of Unix time, rounded up
//	X-RateLimit-Waited     how long the request waited for its turn, in seconds: only if it did
func XRateLimit(h http.Header, d *Decision) {
	r := d.Tightest()
	if r == nil {
		return
	}
	full := d.At.Add(r.ResetAfter + time.Second - 1).Unix()

	// One string of all three, and room in d: a response costs one allocation, not six.
	var room [64]byte
	text := strconv.AppendInt(room[:0], r.Limit.burst(), 10)
	limit := len(text)
	text = strconv.AppendInt(text, r.Remaining, 10)
	remaining := len(text)
	text = strconv.AppendInt(text, full, 10)
	all := string(text)
	d.values = [3]string{all[:limit], all[limit:remaining], all[remaining:]}

	h["X-Ratelimit-Limit"] = d.values[0:1:1]
	h["X-Ratelimit-Remaining"] = d.values[1:2:2]
	h["X-Ratelimit-Reset"] = d.values[2:3:3]
	setWaited(h, d)
}

// NoHeaders writes nothing: for APIs that do not tell their limits. A denial still has Retry-After.
func NoHeaders(http.Header, *Decision) {}

// setDenied writes what every denial has, whatever the HeaderFunc: when to come back, unless that is
// never, and that a cache must not keep it (RFC 6585, section 4).
func setDenied(h http.Header, d *Decision) {
	h.Del("Retry-After")
	if after := d.RetryAfter(); after != Never {
		h.Set("Retry-After", strconv.FormatInt(seconds(after), 10))
	}
	h.Set("Cache-Control", "no-store")
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
