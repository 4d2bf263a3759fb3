package clientip

import "strings"

// The functions below return lengths of the elements of RFC 9110 section 5.6 at the start of a string.

// tokenLen returns the length of a token, 0 if there is none.
func tokenLen(s string) int {
	for i := range len(s) {
		if !isTokenChar[s[i]] {
			return i
		}
	}
	return len(s)
}

// isTokenChar is a table because a client can send 8 KiB of token in each request.
var isTokenChar = func() (table [256]bool) {
	for c := range table {
		table[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		table[c] = true
	}
	return table
}()

// quotedLen returns the length, with quotes, of the quoted-string that starts at s[0]. It is 0 if the string is not
// closed or contains a control character.
func quotedLen(s string) int {
	escaped := false
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c < ' ' && c != '\t' || c == '\x7f':
			return 0
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			return i + 1
		}
	}
	return 0
}

// unquote returns the content of a quoted-string, and a token as it is.
func unquote(s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	s = s[1 : len(s)-1]
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// trimOWS removes optional whitespace from both ends. Unlike strings.TrimSpace, it keeps other Unicode spaces.
func trimOWS(s string) string {
	s = trimLeftOWS(s)
	for s != "" && isOWS(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func trimLeftOWS(s string) string {
	for s != "" && isOWS(s[0]) {
		s = s[1:]
	}
	return s
}

func isOWS(c byte) bool {
	return c == ' ' || c == '\t'
}
