package clientip

import (
	"net/netip"
	"strings"
)

// maxForwardedLine is the maximum length of a Forwarded line in bytes. Because of its quotes, a line must be checked
// completely, from the left, before any part of it is trusted.
const maxForwardedLine = 8 << 10

// Forwarded returns the addresses in the "for" parameters of the lines of a Forwarded header (RFC 7239). The lines
// are one list, and the first line is leftmost. A quoted string ends with its line. So an open quote from a client
// cannot hide an entry that a proxy wrote on another line.
//
// An address has the form of RFC 7239 section 6: IPv4, or IPv6 in brackets, each with an optional port of digits.
// Everything but a plain IPv4 address must be quoted, because a token contains neither colons nor brackets.
// Whitespace is accepted around ";" and ",".
//
// An element is invalid if it has no "for" or two, or if the address or the port is "unknown" or obfuscated. A line
// with a syntax error, or of more than 8 KiB, counts as one invalid entry.
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

// lastComma returns the index of the last comma outside quotes in a valid line, or -1. It may search from the right
// only because the line is valid. Then backslashes are inside quotes only, and a quote is escaped if an odd number of
// backslashes precedes it.
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

// parseNode parses the value of a "for" parameter, quoted or not, as the node of RFC 7239 section 6.
func parseNode(value string) (netip.Addr, bool) {
	node := unquote(value)
	// More than one colon means an IPv6 address, which must be in brackets.
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

// readElement reads the element at the start of s. It returns the text after the next comma, and whether there was a
// comma. It returns ok=false if the syntax is wrong.
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

// readPair reads the forwarded-pair at the start of s. The value keeps its quotes.
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
