package accesslog

import (
	"strconv"
	"strings"
)

// parseCLF reads a line of the common or combined log format.
func (p *parser) parseCLF(line string, e *Entry, of *record) Reason {
	unlike := NotCombined
	if p.format == Common {
		unlike = NotCommon
	}
	end := strings.IndexByte(line, ' ')
	if end <= 0 {
		return unlike
	}
	of.addr = line[:end]
	rest, reason := p.bracketed(line[end:], e)
	if reason == NotCombined {
		reason = unlike
	}
	if reason != good {
		return reason
	}
	request, rest, ok := quoted(rest)
	if !ok || !strings.HasPrefix(rest, " ") {
		return unlike
	}
	if reason := of.splitRequest(request); reason != good {
		return reason
	}
	of.status, rest, _ = strings.Cut(rest[1:], " ")
	of.size, rest, _ = strings.Cut(rest, " ")
	if of.status == "" || of.size == "" {
		return unlike
	}
	if p.format == Common {
		return good
	}
	return p.further(rest, e, of)
}

// further reads the quoted fields after the size. Fields without quotes are passed over.
func (p *parser) further(rest string, e *Entry, of *record) Reason {
	n := 0
	for rest != "" {
		if rest[0] != '"' {
			_, rest, _ = strings.Cut(rest, " ")
			continue
		}
		value, after, ok := quoted(rest)
		if !ok {
			return NotCombined
		}
		rest = strings.TrimPrefix(after, " ")
		name := ""
		switch {
		case n == 0:
			name = "Referer"
		case n == 1:
			name = "User-Agent"
		case n-2 < len(p.extra):
			name = p.extra[n-2]
		}
		n++
		switch {
		case name == "" || name == "-" || value == "-":
		case name == "Host":
			of.host = value
		default:
			e.setHeader(name, value)
		}
	}
	switch {
	case n < 2:
		return NotCombined
	case n < 2+len(p.extra):
		return FewFields
	}
	return good
}

// bracketed finds the time in rest, and returns what is behind it, from the quote of the request. The name of the user
// before it may hold blanks and brackets.
func (p *parser) bracketed(rest string, e *Entry) (string, Reason) {
	reason := NotCombined
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
		if p.timeOf(rest[:end], e) {
			return rest[end+2:], good
		}
		reason = WrongTime
	}
}

// quoted reads the quoted text that s begins with, and returns what is behind it.
func quoted(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	s = s[1:]
	end := strings.IndexByte(s, '"')
	if end < 0 {
		return "", "", false
	}
	if strings.IndexByte(s[:end], '\\') < 0 {
		return s[:end], s[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			n := unescape(&b, s[i+1:])
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// unescape writes what the escape is that s begins with, behind its backslash, and returns its length. It knows the
// escapes of Apache and nginx.
func unescape(b *strings.Builder, s string) int {
	if s == "" {
		b.WriteByte('\\')
		return 0
	}
	switch s[0] {
	case '"', '\\':
		b.WriteByte(s[0])
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'b':
		b.WriteByte('\b')
	case 'f':
		b.WriteByte('\f')
	case 'v':
		b.WriteByte('\v')
	case 'x':
		if len(s) >= 3 {
			if n, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				return 3
			}
		}
		b.WriteString(`\x`)
	default:
		b.WriteByte('\\')
		b.WriteByte(s[0])
	}
	return 1
}

// splitRequest reads the first line of a request.
func (of *record) splitRequest(line string) Reason {
	var ok1, ok2 bool
	of.method, line, ok1 = strings.Cut(line, " ")
	of.target, of.proto, ok2 = strings.Cut(line, " ")
	if !ok1 || !ok2 || of.proto == "" {
		return WrongRequest
	}
	return good
}
