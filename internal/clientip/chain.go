package clientip

import (
	"net/netip"
	"slices"
)

// MaxElements is the maximum number of list elements, with empty ones, that are read from one header. Real chains of
// proxies are much shorter.
const MaxElements = 64

// Chain is the list of addresses in the lines of a forwarding header. The last one is from the nearest proxy. Make it
// with [XForwardedFor] or [Forwarded]; the zero Chain is empty.
//
// It is read lazily and from the right. It ends at an entry that is not an address, so that nothing to the left of
// such an entry is trusted. Empty elements are skipped, as RFC 9110 section 5.6.1 requires. They do not count as the
// entry of a proxy, because a client may send them and a proxy does not. The 65th element, empty or not, counts as
// invalid, which bounds the work.
//
// It is not an [iter.Seq2], because a loop over an unknown function keeps its variables on the heap: 9 allocations
// for each request.
type Chain struct {
	lines   []string
	valid   func(line string) bool
	cutLast func(line string) (before string, e entry, more bool)
}

// entry is the content of one list element. It is invalid if it has no address and empty is not set.
type entry struct {
	addr  netip.Addr
	ok    bool
	empty bool
}

// all yields the entries from right to left. An invalid entry is yielded with false, and is the last one.
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

// An Entry is one entry of a Chain, for people who want to know how it was read.
type Entry struct {
	Text   string // as the header has it, without the whitespace around it; of a long one the end
	Beyond bool   // stands for all elements that are too many to be read
}

// Entries returns the entries from right to left. Unlike a search for the client, it goes on after an entry that is not an
// address. So the first ones are those that a search has read.
func (c Chain) Entries() (entries []Entry) {
	visited := 0
	for _, line := range slices.Backward(c.lines) {
		for more := true; more; {
			text, e := line, entry{}
			more = c.valid(line)
			if more {
				line, e, more = c.cutLast(line)
			}
			if more {
				text = text[len(line)+1:]
			}
			visited++
			if !e.empty || visited > MaxElements {
				entries = append(entries, Entry{shortened(trimOWS(text)), visited > MaxElements})
			}
			if visited > MaxElements {
				return entries
			}
		}
	}
	return entries
}

func shortened(text string) string { return text[max(0, len(text)-maxEntry):] }
