package clientip

import "strings"

// XForwardedFor returns the addresses in the lines of an X-Forwarded-For header,
// each as [Parse] reads it. The lines are one list, the first one leftmost.
//
// An element of more than 256 bytes is invalid. So the search for its start is short, even in a long line.
func XForwardedFor(lines []string) Chain {
	anyLine := func(string) bool { return true }
	return Chain{lines, anyLine, cutLastXForwardedFor}
}

func cutLastXForwardedFor(line string) (before string, e entry, more bool) {
	start := max(0, len(line)-maxEntry-1)
	comma := strings.LastIndexByte(line[start:], ',')
	element := line[start+comma+1:]
	if len(element) > maxEntry {
		return "", entry{}, false
	}
	if comma >= 0 {
		before, more = line[:start+comma], true
	}
	if element = trimOWS(element); element == "" {
		e.empty = true
	} else {
		e.addr, e.ok = parse(element)
	}
	return before, e, more
}
