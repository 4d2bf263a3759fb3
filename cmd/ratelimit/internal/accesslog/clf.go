package accesslog

import (
	"strconv"
	"strings"
)

// parseCLF reads the fields that the common and the combined log format have, and returns what is behind them.
func (r *Reader) parseCLF(line string, e *Entry, of *record) (rest string, reason *Reason) {
	end := strings.IndexByte(line, ' ')
	if end <= 0 {
		return "", NotCLF
	}
	of.addr = line[:end]
	if rest, reason = r.bracketed(line[end:], e); reason != nil {
		return "", reason
	}
	request, rest, ok := quoted(rest)
	if !ok || !strings.HasPrefix(rest, " ") {
		return "", NotCLF
	}
	if reason := of.splitRequest(request); reason != nil {
		return "", reason
	}
	of.status, rest, _ = strings.Cut(rest[1:], " ")
	of.size, rest, _ = strings.Cut(rest, " ")
	if of.status == "" || of.size == "" {
		return "", NotCLF
	}
	return rest, nil
}

// further reads the quoted fields after the size. Fields without quotes are passed over.
func (r *Reader) further(rest string, of *record) *Reason {
	n := 0
	for rest != "" {
		if rest[0] != '"' {
			_, rest, _ = strings.Cut(rest, " ")
			continue
		}
		value, after, ok := quoted(rest)
		if !ok {
			return NotCLF
		}
		rest = strings.TrimPrefix(after, " ")
		name := ""
		if n < len(r.quoted) {
			name = r.quoted[n]
		}
		n++
		switch {
		case name == "" || name == "-" || value == "-":
		case name == "Host":
			of.host = value
		default:
			of.header[name] = []string{value}
		}
	}
	switch {
	case n < 2:
		return NotCLF
	case n < len(r.quoted):
		return FewFields
	}
	return nil
}

// bracketed finds the time in rest, and returns what is behind it, from the quote of the request. The name of the user
// before it may hold blanks and brackets.
func (r *Reader) bracketed(rest string, e *Entry) (string, *Reason) {
	reason := NotCLF
	for {
		at := strings.Index(rest, " [")
		if at < 0 {
			return "", reason
		}
		rest = rest[at+2:]
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return "", reason
		}
		if !strings.HasPrefix(rest[end:], `] "`) {
			continue
		}
		if r.timeOf(rest[:end], e) {
			return rest[end+2:], nil
		}
		reason = WrongTime
	}
}

// quoted reads the quoted text that s begins with, and returns what is behind it. Apache and nginx write escapes as Go
// does. All other text stands for itself.
func quoted(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	for end := 1; end < len(s); end++ {
		switch s[end] {
		case '\\':
			end++
		case '"':
			text = s[1:end]
			if strings.Contains(text, `\`) {
				if plain, err := strconv.Unquote(s[:end+1]); err == nil {
					text = plain
				}
			}
			return text, s[end+1:], true
		}
	}
	return "", "", false
}

// splitRequest reads the first line of a request.
func (of *record) splitRequest(line string) *Reason {
	var ok1, ok2 bool
	of.method, line, ok1 = strings.Cut(line, " ")
	of.target, of.proto, ok2 = strings.Cut(line, " ")
	if !ok1 || !ok2 || of.proto == "" {
		return WrongRequest
	}
	return nil
}
