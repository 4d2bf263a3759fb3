package answer

import (
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A form is one that an answer can have.
type form int

const (
	asProblem form = iota // application/problem+json, for those who accept application/json too
	asText                // text/plain
	asPage                // text/html
	forms
)

// How specifically a media range can name a form. The order is that of precedence (RFC 9110, section 12.5.1).
const (
	unnamed  = iota
	anything // */*
	itsType  // text/*
	itsKin   // application/json, for a problem
	itself
)

// A preference is what an Accept says of a form, by the most specific range that names it.
type preference struct {
	named   int
	charset bool // asks for UTF-8 as well, which is more specific still
	weight  int  // in thousandths
}

// maxAccept bounds how much of Accept is read, in bytes, so that nobody can make a denial dear. Browsers send
// less than 200.
const maxAccept = 1024

// preferredForm returns the form that weighs most in the lines of an Accept. Of equal ones that is the one
// that is named and not just covered by a wildcard, as by the "text/html, */*" of old browsers, and then the
// first in order. It is the first in order, too, if nothing in Accept can be read or had: any answer helps
// more than a 406.
func preferredForm(accept []string, order [forms]form) form {
	var preferences [forms]preference
	left := maxAccept
	for _, line := range accept {
		if len(line) > left {
			line = line[:strings.LastIndexByte(line[:left], ',')+1] // a range that was cut would be another
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

// consider takes over what a range says that is more specific than p, or as specific and more favourable.
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

// parseMediaRange parses an element of an Accept. It is false if that is malformed, or asks for a parameter
// that no form has.
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

// cutUnquoted cuts s around the first sep that does not stand in a quoted string.
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
