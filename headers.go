package ratelimit

import (
	"context"
	"net/http"
	"strconv"

	"github.com/go-tokenbucket/ratelimit/internal/answer"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// A HeaderFunc writes a decision into the response header, before the handler or the denial writes the response. It is
// not called if no policy applied, or only Hidden ones.
//
// Set headers, do not add to them: stacked calls of Handler and Limit call it in turn, each with the results of the
// outer ones, too.
// Leave out Hidden results, as [Decision.Tightest] and [Decision.Quotas] do. Tightest returns nil if all others are
// Shadow. Rate limit headers that other middleware has set before are merged afterwards, see
// [github.com/go-tokenbucket/ratelimit/headers.Merge].
type HeaderFunc func(h http.Header, d *Decision)

// XRateLimit writes the headers that most APIs have, for the result of [Decision.Tightest]:
//
//	X-RateLimit-Limit      the burst: the number of tokens in a full bucket
//	X-RateLimit-Remaining  the number of tokens left
//	X-RateLimit-Reset      when the bucket is full again, in seconds of Unix time, rounded up; the end of a quota's period;
//	                       absent for a concurrency limit
//	X-RateLimit-Waited     how long the request waited for its tokens, in seconds; absent if it did not wait
//
// For a concurrency limit, the tokens are its slots.
// A token is one request, unless [Policy.Cost] is set. A request can be repeated Remaining / cost times at once. For
// other formats, see https://github.com/go-tokenbucket/ratelimit/blob/main/docs/headers.md.
func XRateLimit(h http.Header, d *Decision) {
	if r := d.Tightest(); r != nil {
		reset := int64(rateheader.NoReset)
		if !r.Limit.IsConcurrency() {
			reset = d.resetOf(r)
		}
		rateheader.SetXRateLimit(h, d.room(), r.Limit.burst(), r.Remaining, reset)
		rateheader.SetWaited(h, d.VisibleWait())
	}
}

// setDenied writes the headers of every denial, whatever the HeaderFunc. Retry-After is left out if the request can
// never succeed. Cache-Control is set because a cache must not store a 429 (RFC 6585, section 4).
func setDenied(h http.Header, d *Decision) {
	h.Del("Retry-After")
	if after := d.RetryAfter(); after != Never {
		h.Set("Retry-After", strconv.FormatInt(rateheader.Seconds(after), 10))
	}
	answer.NoStore(h)
}

// setHeaders writes x's decision into h. If middleware outside of all limiters has set such headers already, they are
// merged. The request that it returns then carries them for the limiters inside.
func (l *Limiter) setHeaders(h http.Header, x *exchange, r *http.Request) *http.Request {
	d := &x.decision
	if !d.visible() {
		return r
	}
	if len(h) == 0 || h[rateheader.XRemaining] == nil && h[rateheader.RateLimit] == nil && h[rateheader.RateLimitPolicy] == nil {
		l.headers(h, d)
		return r
	}
	foreign, _ := x.parent().Value(foreignKey{}).(http.Header)
	if foreign != nil {
		l.setInside(h, d, foreign)
		return r
	}
	if _, stacked := FromContext(x.parent()); stacked {
		l.headers(h, d) // replaces the headers of the outer limiter
		return r
	}
	foreign = rateheader.Take(h)
	l.headers(h, d)
	rateheader.Merge(h, foreign)
	return r.WithContext(context.WithValue(r.Context(), foreignKey{}, foreign))
}

// visible reports whether any result may be shown to a client.
func (d *Decision) visible() bool {
	for i := range d.Results {
		if !d.Results[i].Hidden {
			return true
		}
	}
	return false
}

type foreignKey struct{}

// setInside is setHeaders for a limiter inside another one that has merged its headers with foreign. It merges them
// again, because d has the results of the outer limiter, too.
func (l *Limiter) setInside(h http.Header, d *Decision, foreign http.Header) {
	before := rateheader.Take(h)
	l.headers(h, d)
	outer := make(http.Header, len(before))
	for name, values := range before {
		if !rateheader.Tells(h, name) {
			outer[name] = values
		}
	}
	for name, values := range foreign {
		if rateheader.Tells(h, name) {
			outer[name] = values
		}
	}
	rateheader.Merge(h, outer)
}

// room returns room for three header values: for the first caller in d itself, which costs no allocation.
func (d *Decision) room() []string {
	if d.values[0] == "" {
		return d.values[:]
	}
	return make([]string, len(d.values))
}
