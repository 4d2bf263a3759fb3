package clientip

import (
	"net/netip"
	"strings"
)

// maxForwardedLine is the length in bytes of the longest Forwarded line that is
// read. Because of its quotes a line has to be checked whole, from the left,
// before any of it is believed.
const maxForwardedLine = 8 << 10

// Forwarded returns the addresses in the "for" parameters of the lines of a
// Forwarded header (RFC 7239). The lines are one list, the first one leftmost,
// but no quoted string extends from one to the next: a quote that a client
// leaves open does not swallow what a proxy wrote on a line of its own.
//
// An address has the form of RFC 7239 section 6: IPv4, or IPv6 in brackets,
// each also with a port of digits. Anything but a bare IPv4 address has to be
// quoted, since a token contains neither colons nor brackets. Whitespace is
// accepted around ";" as it is around ",".
//
// Invalid are elements without a "for", with two, or with one that is "unknown"
// or obfuscated, be it the address or the port; and, each as one entry, lines
// with a syntax error anywhere and lines of more than 8 KiB.
func Forwarded(lines []string) Chain {
	return Chain{lines, validForwarded, cutLastForwarded}
}

func validForwarded(line string) bool {
	if len(line) > maxForwardedLine {
		return false
	}
	for more := true; more; {
		var ok bool
		_, line, more, ok = readElement(line)
		if !ok {
			return false
		}
	}
	return true
}

func cutLastForwarded(line string) (before string, e entry, more bool) {
	comma := lastComma(line)
	if comma >= 0 {
		before, more = line[:comma], true
	}
	last, _, _, _ := readElement(line[comma+1:])
	if last.empty {
		e.empty = true
	} else {
		e.addr, e.ok = parseNode(last.node)
	}
	return before, e, more
}

// lastComma returns the index of the last comma outside quotes in a valid line,
// or -1. Going from the right is safe in a valid line only: there backslashes
// are nowhere but in quotes, so that a quote is escaped if and only if an odd
// number of them precedes it.
func lastComma(line string) int {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case ',':
			if !quoted {
				return i
			}
		case '"':
			unescaped := true
			for i > 0 && line[i-1] == '\\' {
				unescaped = !unescaped
				i--
			}
			if unescaped {
				quoted = !quoted
			}
		}
	}
	return -1
}

// parseNode parses the value of a "for" parameter, with its quotes if it has
// any, as the node of RFC 7239 section 6.
func parseNode(value string) (netip.Addr, bool) {
	node := unquote(value)
	// More than one colon is an IPv6 address, which has to be in brackets.
	if !strings.HasPrefix(node, "[") && strings.Count(node, ":") > 1 {
		return netip.Addr{}, false
	}
	return parse(node)
}

// element is one forwarded-element of RFC 7239 section 4.
type element struct {
	node  string // value of the only "for" parameter, else ""
	empty bool
}

// readElement reads the element at the start of s. It returns what follows the
// comma after it and whether there was a comma, or ok=false if the syntax is
// wrong.
func readElement(s string) (e element, rest string, comma, ok bool) {
	e.empty = true
	nodes := 0
	for {
		s = trimLeftOWS(s)
		if s != "" && isTokenChar[s[0]] {
			var name, value string
			name, value, s, ok = readPair(s)
			if !ok {
				return element{}, "", false, false
			}
			if strings.EqualFold(name, "for") {
				e.node = value
				nodes++
			}
			e.empty = false
			s = trimLeftOWS(s)
		}
		if !strings.HasPrefix(s, ";") {
			break
		}
		e.empty = false
		s = s[1:]
	}
	if nodes != 1 {
		e.node = ""
	}
	if s == "" {
		return e, "", false, true
	}
	return e, s[1:], true, s[0] == ','
}

// readPair reads the forwarded-pair at the start of s. The value keeps its
// quotes.
func readPair(s string) (name, value, rest string, ok bool) {
	i := tokenLen(s)
	name, s = s[:i], s[i:]
	if !strings.HasPrefix(s, "=") {
		return "", "", "", false
	}
	s = s[1:]
	if strings.HasPrefix(s, `"`) {
		i = quotedLen(s)
	} else {
		i = tokenLen(s)
	}
	return name, s[:i], s[i:], i > 0
}
