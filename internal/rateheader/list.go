package rateheader

import "strings"

// isList reports whether text is a List of Structured Fields (RFC 9651) as in RateLimit and RateLimit-Policy: at
// least one String, each with optional parameters. It checks lists from other programs, because one malformed member
// makes clients ignore the whole list.
func isList(text string) bool {
	s := scanner(strings.Trim(text, " "))
	for {
		if !s.quoted() || !s.parameters() {
			return false
		}
		s.skip(" \t")
		if s == "" {
			return true
		}
		if !s.next(',') {
			return false
		}
		s.skip(" \t")
	}
}

// A scanner is the unread rest of a text. Its methods read an element, or report that the element is missing.
type scanner string

func (s *scanner) next(c byte) bool {
	if *s == "" || (*s)[0] != c {
		return false
	}
	*s = (*s)[1:]
	return true
}

// skip reads all leading characters that are in chars, and returns their number.
func (s *scanner) skip(chars string) int {
	rest := strings.TrimLeft(string(*s), chars)
	n := len(*s) - len(rest)
	*s = scanner(rest)
	return n
}

func (s *scanner) parameters() bool {
	for s.next(';') {
		s.skip(" ")
		if !s.key() || s.next('=') && !s.item() {
			return false
		}
	}
	return true
}

const (
	digits  = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

func (s *scanner) key() bool {
	if *s == "" || !strings.Contains(lower+"*", string((*s)[:1])) {
		return false
	}
	s.skip(lower + digits + "_-.*")
	return true
}

// item reads a bare item. Dates and Display Strings are not accepted: they came with RFC 9651, and older readers do
// not know them.
func (s *scanner) item() bool {
	if *s == "" {
		return false
	}
	switch c := (*s)[0]; {
	case c == '"':
		return s.quoted()
	case c == '?':
		s.next(c)
		return s.next('0') || s.next('1')
	case c == ':':
		s.next(c)
		n := s.skip(letters + digits + "+/")
		padding := s.skip("=")
		return padding <= 2 && (n+padding)%4 == 0 && s.next(':')
	case c == '-' || strings.IndexByte(digits, c) >= 0:
		return s.number()
	case c == '*' || strings.IndexByte(letters, c) >= 0:
		s.skip(letters + digits + "!#$%&'*+-.^_`|~:/")
		return true
	}
	return false
}

func (s *scanner) number() bool {
	s.next('-')
	whole := s.skip(digits)
	if !s.next('.') {
		return 1 <= whole && whole <= 15
	}
	part := s.skip(digits)
	return 1 <= whole && whole <= 12 && 1 <= part && part <= 3
}

func (s *scanner) quoted() bool {
	if !s.next('"') {
		return false
	}
	for i := 0; i < len(*s); i++ {
		switch c := (*s)[i]; {
		case c == '"':
			*s = (*s)[i+1:]
			return true
		case c == '\\':
			i++
			if i == len(*s) || (*s)[i] != '"' && (*s)[i] != '\\' {
				return false
			}
		case c < ' ' || c > '~':
			return false
		}
	}
	return false
}
