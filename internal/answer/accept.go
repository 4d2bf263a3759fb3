package answer

import (
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A form is one of the formats of a response.
type form int

const (
	asProblem form = iota // application/problem+json, also for clients that accept application/json
	asText                // text/plain
	asPage                // text/html
	forms
)

// How specific a media range is, by precedence (RFC 9110, section 12.5.1).
const (
	unnamed  = iota
	anything // */*
	itsType  // text/*
	itsKin   // application/json, for a problem
	itself
)

// A preference is what an Accept header says about a form, by the most specific range that covers it.
type preference struct {
	named   int
	charset bool // asks for UTF-8, which is more specific
	weight  int  // in thousandths
}

// maxAccept is the number of bytes of Accept that are read. It bounds the cost of a denial. Browsers send less than
// 200 bytes.
const maxAccept = 1024

// preferredForm returns the form with the largest weight in the lines of an Accept header. Of forms with equal
// weight, it returns one that is named, and not only covered by a wildcard as by the "text/html, */*" of old
// browsers. If there are several, the first in order counts. It returns the first in order also if no form can be
// found in Accept, because any response is more useful than a 406.
func preferredForm(accept []string, order [forms]form) form {
	var preferences [forms]preference
	left := maxAccept
	for _, line := range accept {
		if len(line) > left {
			line = line[:strings.LastIndexByte(line[:left], ',')+1] // part of a range would be another range
			left = 0
		}
		left = max(0, left-len(line))
		for line != "" {
			var element string
			element, line = cutUnquoted(line, ',')
			if r, ok := parseMediaRange(element); ok {
				for f := range forms {
					preferences[f].consider(preference{r.names(f), r.charset, r.weight})
				}
			}
		}
	}
	best := order[0]
	for _, f := range order[1:] {
		if preferences[f].above(preferences[best]) {
			best = f
		}
	}
	return best
}

// consider replaces p by a range that is more specific, or equally specific with a larger weight.
func (p *preference) consider(q preference) {
	switch {
	case q.named == unnamed:
	case q.named != p.named:
		if q.named > p.named {
			*p = q
		}
	case q.charset != p.charset:
		if q.charset {
			*p = q
		}
	case q.weight > p.weight:
		*p = q
	}
}

// above reports whether the form of p is better than that of q.
func (p preference) above(q preference) bool {
	if p.weight != q.weight || p.weight == 0 {
		return p.weight > q.weight
	}
	return min(p.named, itsKin) > min(q.named, itsKin)
}

// A mediaRange is one element of an Accept.
type mediaRange struct {
	main, sub string
	charset   bool // with a charset of UTF-8
	weight    int  // in thousandths
}

// names returns how specifically r names f.
func (r mediaRange) names(f form) int {
	main, sub := "text", "plain"
	switch f {
	case asProblem:
		main, sub = "application", "problem+json"
	case asPage:
		sub = "html"
	}
	switch {
	case r.main == "*":
		return anything
	case !strings.EqualFold(r.main, main):
		return unnamed
	case r.sub == "*":
		return itsType
	case f == asProblem && strings.EqualFold(r.sub, "json"):
		return itsKin
	case strings.EqualFold(r.sub, sub):
		return itself
	}
	return unnamed
}

// parseMediaRange parses an element of an Accept header. It reports false if the element is malformed, or asks for a
// parameter that no form has.
func parseMediaRange(element string) (mediaRange, bool) {
	name, parameters := cutUnquoted(element, ';')
	main, sub, _ := strings.Cut(trimBlanks(name), "/")
	if !requestheader.IsToken(main) || !requestheader.IsToken(sub) || main == "*" && sub != "*" {
		return mediaRange{}, false
	}
	r := mediaRange{main: main, sub: sub, weight: 1000}
	for parameters != "" {
		var parameter string
		parameter, parameters = cutUnquoted(parameters, ';')
		if parameter = trimBlanks(parameter); parameter == "" {
			continue
		}
		name, value, _ := strings.Cut(parameter, "=")
		switch {
		case strings.EqualFold(name, "q"):
			weight, ok := parseWeight(value)
			if !ok {
				return mediaRange{}, false
			}
			r.weight = weight
		case strings.EqualFold(name, "charset") && (strings.EqualFold(value, "utf-8") || strings.EqualFold(value, `"utf-8"`)):
			r.charset = true
		default:
			return mediaRange{}, false
		}
	}
	return r, true
}

// parseWeight parses a number from 0 to 1 of at most three decimals, into thousandths.
func parseWeight(s string) (int, bool) {
	if s == "" || len(s) > len("0.123") || s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0, false
	}
	weight, worth := int(s[0]-'0')*1000, 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		weight += int(s[i]-'0') * worth
		worth /= 10
	}
	return weight, weight <= 1000
}

// cutUnquoted cuts s around the first sep outside of quoted strings.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func trimBlanks(s string) string { return strings.Trim(s, " \t") }
