package rateheader

import "strings"

// isList reports whether text is a List of Structured Fields (RFC 9651) of the kind that RateLimit and
// RateLimit-Policy hold: of Strings that may have parameters, and at least one. It is for what others wrote,
// because a malformed member makes clients ignore a whole list.
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

// A scanner is what is left to read of a text. Its methods read something, or report that it is not there.
type scanner string

func (s *scanner) next(c byte) bool {
	if *s == "" || (*s)[0] != c {
		return false
	}
	*s = (*s)[1:]
	return true
}

// skip reads as many of chars as there are, and returns how many.
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

// item reads a bare item. Dates and Display Strings, which came with RFC 9651, are none to older readers, nor here.
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
