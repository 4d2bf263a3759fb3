package ratelimit

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/answer"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
)

// A HeaderFunc writes what a decision says into the header of its response, before the handler or the
// denial does. Where limiters are stacked it is called by each, with the results of the outer ones too:
// it sets headers and does not add to them. What others have set outside of all limiters is merged with that
// afterwards, as headers.Merge does. It must leave out Results that are Hidden, as Tightest and Quotas do. It is not
// called if no policy applied, or only hidden ones. Tightest is nil if the others are a Shadow.
type HeaderFunc func(h http.Header, d *Decision)

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
		reset := d.At.Add(r.ResetAfter + time.Second - 1).Unix()
		rateheader.SetXRateLimit(h, d.room(), r.Limit.burst(), r.Remaining, reset)
		rateheader.SetWaited(h, d.VisibleWait())
	}
}

// setDenied writes what every denial has, whatever the HeaderFunc: when to come back, unless that is
// never, and that a cache must not keep it (RFC 6585, section 4).
func setDenied(h http.Header, d *Decision) {
	h.Del("Retry-After")
	if after := d.RetryAfter(); after != Never {
		h.Set("Retry-After", strconv.FormatInt(rateheader.Seconds(after), 10))
	}
	answer.NoStore(h)
}

// setHeaders writes what x's decision says into h. If something outside of all limiters has set such headers
// already, they are merged, and the request that is returned tells limiters inside of them.
func (l *Limiter) setHeaders(h http.Header, x *exchange, r *http.Request) *http.Request {
	d := &x.decision
	if !d.visible() {
		return r
	}
	if len(h) == 0 || h[rateheader.XRemaining] == nil && h[rateheader.RateLimit] == nil && h[rateheader.RateLimitPolicy] == nil {
		l.headers(h, d)
		return r
	}
	foreign, _ := x.came().Value(foreignKey{}).(http.Header)
	if foreign != nil {
		l.setInside(h, d, foreign)
		return r
	}
	if _, stacked := FromContext(x.came()); stacked {
		l.headers(h, d) // what stands there is the outer limiter's
		return r
	}
	foreign = rateheader.Take(h)
	l.headers(h, d)
	rateheader.Merge(h, foreign)
	return r.WithContext(context.WithValue(r.Context(), foreignKey{}, foreign))
}

// visible reports whether a client may be told of any result.
func (d *Decision) visible() bool {
	for i := range d.Results {
		if !d.Results[i].Hidden {
			return true
		}
	}
	return false
}

type foreignKey struct{}

// setInside is setHeaders for a limiter inside of another that has merged its headers with foreign. They are
// merged anew: d has the results of the outer one.
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

// room returns room for three header values: that in d, which costs no allocation, for whoever asks first.
func (d *Decision) room() []string {
	if d.values[0] == "" {
		return d.values[:]
	}
	return make([]string, len(d.values))
}
