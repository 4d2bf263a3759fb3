package rateheader

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tells reports whether h has the information of the header name.
func Tells(h http.Header, name string) bool {
	if inFamily(name) {
		name = XRemaining
	}
	return h[name] != nil
}

// inFamily reports whether name, in its canonical form, is a header that has a meaning only together with others.
func inFamily(name string) bool {
	return strings.HasPrefix(name, "X-Ratelimit-") && name != XWaited && name != XShadow
}

// lists are the headers with a member for each policy.
var lists = [...]string{RateLimitPolicy, RateLimit, XShadow}

// Take removes the rate limit headers and Retry-After from h, and returns them in canonical form. It returns nil if
// there are none.
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

// Merge merges outer, from Take, into h, which an inner handler wrote. Of two sets of X-RateLimit headers, the one
// with less remaining is kept as a whole, so that numbers are never mixed. Lists get the members of both, the outer
// ones first. Then each header has one line, even if it had several before.
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

// tighterFamily returns the set with less remaining. A set without a number for it loses.
func tighterFamily(outer, inner http.Header) http.Header {
	outerLeft, innerLeft := remainingOf(outer), remainingOf(inner)
	if innerLeft < outerLeft || outerLeft == math.MaxInt64 && !hasFamily(outer) {
		return inner
	}
	return outer
}

// remainingOf returns the X-RateLimit-Remaining of a set, or math.MaxInt64 if it is not a number.
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

// joinLists returns one list from two headers, each of which may have several lines. If both have lines, it leaves
// out lines that are not lists, because they would spoil the others.
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

// latest returns the value of Retry-After that is furthest in the future. If no value can be read, it returns all.
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
