package rateheader

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tells reports whether h tells what the header name does.
func Tells(h http.Header, name string) bool {
	if inFamily(name) {
		name = XRemaining
	}
	return h[name] != nil
}

// inFamily reports whether name, in its canonical form, is one of the headers that mean something only together.
func inFamily(name string) bool {
	return strings.HasPrefix(name, "X-Ratelimit-") && name != XWaited && name != XShadow
}

// lists are the headers that hold a member for each policy.
var lists = [...]string{RateLimitPolicy, RateLimit, XShadow}

// Take removes from h what tells limits, and Retry-After, and returns that in canonical form; nil if
// there is none.
func Take(h http.Header) http.Header {
	var taken http.Header
	for name, values := range h {
		canonical := http.CanonicalHeaderKey(name)
		if len(values) == 0 || !inFamily(canonical) && canonical != XWaited && canonical != retryAfter && !slices.Contains(lists[:], canonical) {
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

// Merge merges outer, of Take, into h, which was written further inside. Of X-RateLimit the
// set with less remaining is kept whole, so that numbers never mix; lists hold the members of both, the outer
// ones first. No header is there twice then, even if either had it so.
func Merge(h, outer http.Header) {
	inner := Take(h)
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
	setFirst(h, XWaited, slices.Concat(outer[XWaited], inner[XWaited]))
	setFirst(h, retryAfter, latest(slices.Concat(inner[retryAfter], outer[retryAfter])))
}

func setFirst(h http.Header, name string, values []string) {
	if len(values) > 0 {
		h[name] = values[:1:1]
	}
}

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
	n, err := strconv.ParseUint(set.Get(XRemaining), 10, 63)
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
