package clientip

import (
	"net/netip"
	"slices"
)

// MaxElements is the number of list elements, empty ones included, that are
// read of one header, far beyond any real chain of proxies.
const MaxElements = 64

// Chain is the list of addresses in the lines of a forwarding header, the one
// that the nearest proxy wrote last. Make it with [XForwardedFor] or
// [Forwarded]; the zero Chain is empty.
//
// It is read lazily and from the right. An entry that is not an address ends
// it, so that nothing to the left of such an entry is ever believed. Empty
// elements are skipped, as RFC 9110 section 5.6.1 asks of recipients; they do
// not count as a proxy's entry, since a client may send them and a proxy appends
// none. The 65th element, empty or not, is an invalid entry, which bounds the
// work.
//
// It is a type rather than an [iter.Seq2] because a loop over an unknown
// function keeps its variables on the heap: 9 allocations for each request.
type Chain struct {
	lines   []string
	valid   func(line string) bool
	cutLast func(line string) (before string, e entry, more bool)
}

// entry is what one list element says. With neither an address nor empty set it
// is invalid.
type entry struct {
	addr  netip.Addr
	ok    bool
	empty bool
}

// all yields the entries from right to left. Only the last may be false, which
// is an invalid one.
func (c Chain) all(yield func(addr netip.Addr, ok bool) bool) {
	visited := 0
	for _, line := range slices.Backward(c.lines) {
		if !c.valid(line) {
			yield(netip.Addr{}, false)
			return
		}
		for more := true; more; {
			var e entry
			line, e, more = c.cutLast(line)
			visited++
			if visited > MaxElements {
				e = entry{}
			}
			if e.empty {
				continue
			}
			if !yield(e.addr, e.ok) || !e.ok {
				return
			}
		}
	}
}
