package ratelimit

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Headers that tell limits may come from others, too: from a limiter outside of ours that is not this package's,
// or from the server behind a proxy. Clients would not know what to make of two of a kind.

// setHeaders writes what x's decision says into h. If something outside of all limiters has set such headers
// already, they are merged, and the request that is returned tells limiters inside of them.
func (l *Limiter) setHeaders(h http.Header, x *exchange, r *http.Request) *http.Request {
	d := &x.decision
	if len(h) == 0 || h[xRemaining] == nil && h[rateLimit] == nil && h[rateLimitPolicy] == nil {
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
	foreign = takeRateLimits(h)
	l.headers(h, d)
	mergeRateLimits(h, foreign)
	return r.WithContext(context.WithValue(r.Context(), foreignKey{}, foreign))
}

type foreignKey struct{}

// setInside is setHeaders for a limiter inside of another that has merged its headers with foreign. They are
// merged anew: d has the results of the outer one.
func (l *Limiter) setInside(h http.Header, d *Decision, foreign http.Header) {
	before := takeRateLimits(h)
	l.headers(h, d)
	outer := make(http.Header, len(before))
	for name, values := range before {
		if !tells(h, name) {
			outer[name] = values
		}
	}
	for name, values := range foreign {
		if tells(h, name) {
			outer[name] = values
		}
	}
	mergeRateLimits(h, outer)
}

// tells reports whether h tells what the header name does.
func tells(h http.Header, name string) bool {
	if inFamily(name) {
		name = xRemaining
	}
	return h[name] != nil
}

// inFamily reports whether name, in its canonical form, is one of the headers that mean something only together.
func inFamily(name string) bool {
	return strings.HasPrefix(name, "X-Ratelimit-") && name != xWaited && name != xShadow
}

// lists are the headers that hold a member for each policy.
var lists = [...]string{rateLimitPolicy, rateLimit, xShadow}

// takeRateLimits removes from h what tells limits, and Retry-After, and returns that in canonical form; nil if
// there is none.
func takeRateLimits(h http.Header) http.Header {
	var taken http.Header
	for name, values := range h {
		canonical := http.CanonicalHeaderKey(name)
		if len(values) == 0 || !inFamily(canonical) && canonical != xWaited && canonical != retryAfter && !slices.Contains(lists[:], canonical) {
			continue
		}
		if taken == nil {
			taken = make(http.Header, 8)
		}
		taken[canonical] = slices.Concat(taken[canonical], values)
		delete(h, name)
	}
	return taken
}

// mergeRateLimits merges outer, of takeRateLimits, into h, which was written further inside. Of X-RateLimit the
// set with less remaining is kept whole, so that numbers never mix; lists hold the members of both, the outer
// ones first. No header is there twice then, even if either had it so.
func mergeRateLimits(h, outer http.Header) {
	inner := takeRateLimits(h)
	for name, values := range tighterFamily(outer, inner) {
		if inFamily(name) {
			setFirst(h, name, values)
		}
	}
	for _, name := range lists {
		if list := joinLists(outer[name], inner[name]); list != "" {
			h[name] = []string{list}
		}
	}
	setFirst(h, xWaited, slices.Concat(outer[xWaited], inner[xWaited]))
	setFirst(h, retryAfter, latest(slices.Concat(inner[retryAfter], outer[retryAfter])))
}

func setFirst(h http.Header, name string, values []string) {
	if len(values) > 0 {
		h[name] = values[:1:1]
	}
}

const retryAfter = "Retry-After"

// tighterFamily returns which of two sets has less remaining. One that does not say so in a number loses.
func tighterFamily(outer, inner http.Header) http.Header {
	outerLeft, innerLeft := remainingOf(outer), remainingOf(inner)
	if innerLeft < outerLeft || outerLeft == math.MaxInt64 && !hasFamily(outer) {
		return inner
	}
	return outer
}

// remainingOf returns a set's X-RateLimit-Remaining, math.MaxInt64 if it is no number.
func remainingOf(set http.Header) int64 {
	n, err := strconv.ParseUint(set.Get(xRemaining), 10, 63)
	if err != nil {
		return math.MaxInt64
	}
	return int64(n)
}

func hasFamily(set http.Header) bool {
	for name := range set {
		if inFamily(name) {
			return true
		}
	}
	return false
}

// joinLists returns one list of two headers, each of which may be several lines. Where both are there, lines
// that are no list are left out, because they would spoil the others.
func joinLists(outer, inner []string) string {
	lines := slices.Concat(outer, inner)
	if len(outer) > 0 && len(inner) > 0 {
		lines = slices.DeleteFunc(lines, func(line string) bool { return !isList(line) })
	}
	if len(lines) == 0 {
		lines = outer
	}
	return strings.Join(lines, ", ")
}

// latest returns of the values of Retry-After the one that is furthest in the future, or if it finds a meaning
// in none of them, all.
func latest(values []string) []string {
	found, longest := values, time.Duration(-1)
	for i, value := range values {
		var after time.Duration
		if n, err := strconv.ParseUint(value, 10, 63); err == nil {
			after = time.Duration(min(n, math.MaxInt64/uint64(time.Second))) * time.Second
		} else if date, err := http.ParseTime(value); err == nil {
			after = max(0, time.Until(date))
		} else {
			continue
		}
		if after > longest {
			found, longest = values[i:i+1], after
		}
	}
	return found
}
