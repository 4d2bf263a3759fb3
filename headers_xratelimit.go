package ratelimit

import (
	"net/http"
	"strconv"
	"time"
)

// XRateLimit writes the headers that most APIs have, for the policy that is Tightest:
//
//	X-RateLimit-Limit      the burst: how many tokens the bucket holds when it is full
//	X-RateLimit-Remaining  how many tokens are left
//	X-RateLimit-Reset      when the bucket is full again, in seconds of Unix time, rounded up
//	X-RateLimit-Waited     how long the request waited for its turn, in seconds: only if it did
//
// Tokens are requests where each costs 1, which is the default. Where a request costs more, it can be repeated
// Remaining / cost times now.
func XRateLimit(h http.Header, d *Decision) {
	if r := d.Tightest(); r != nil {
		setXRateLimit(h, d, r, d.At.Add(r.ResetAfter+time.Second-1).Unix())
	}
}

// XRateLimitDelta is XRateLimit for clients that expect X-RateLimit-Reset in seconds from now, rounded up: 0
// if the bucket is full. They need no clock that is right.
func XRateLimitDelta(h http.Header, d *Decision) {
	if r := d.Tightest(); r != nil {
		setXRateLimit(h, d, r, int64((r.ResetAfter+time.Second-1)/time.Second))
	}
}

func setXRateLimit(h http.Header, d *Decision, r *Result, reset int64) {
	// One string of all three, and room in d: a response costs one allocation, not six.
	var room [64]byte
	text := strconv.AppendInt(room[:0], r.Limit.burst(), 10)
	limit := len(text)
	text = strconv.AppendInt(text, r.Remaining, 10)
	remaining := len(text)
	text = strconv.AppendInt(text, reset, 10)
	all := string(text)
	values := d.room(3)
	values[0], values[1], values[2] = all[:limit], all[limit:remaining], all[remaining:]

	// Remaining is in tokens, and what Spring wrote may be in parts of them.
	if burst := h[springBurst]; len(burst) > 0 && burst[0] != values[0] {
		delete(h, springBurst)
		delete(h, springRate)
		delete(h, springRequested)
	}
	h[xLimit] = values[0:1:1]
	h[xRemaining] = values[1:2:2]
	h[xReset] = values[2:3:3]
	setWaited(h, d)
}

// In the form in which http.Header has them.
const (
	xLimit     = "X-Ratelimit-Limit"
	xRemaining = "X-Ratelimit-Remaining"
	xReset     = "X-Ratelimit-Reset"
	xWaited    = "X-Ratelimit-Waited"
)
