// Package requestheader reads request headers by the rules for credentials.
package requestheader

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
)

// maxValue bounds the values of Single, in bytes, because to scan or hash a megabyte takes a millisecond. The longest
// credentials in use, those of Kerberos, are below it.
const maxValue = 64 << 10

// Single returns the value of a header that must not be repeated, not even with the same value. An application may
// use the first line, the last line or all lines, and so see another identity than the limiter. A value of more than
// 64 KiB is an error, too.
func Single(name string) func(*http.Request) (string, error) {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	absent := failure.New(failure.ErrNoKey, "no %s header", canonical)
	repeated := failure.New(failure.ErrBadRequest, "more than one %s header", canonical)
	long := failure.New(failure.ErrBadRequest, "the %s header is longer than %d bytes", canonical, maxValue)
	return func(r *http.Request) (string, error) {
		switch values := r.Header[canonical]; {
		case len(values) > 1:
			return "", repeated
		case len(values) == 0 || values[0] == "":
			return "", absent
		case len(values[0]) > maxValue:
			return "", long
		default:
			return values[0], nil
		}
	}
}

// IsName reports whether name is a token that can be a key of http.Request.Header. Host is never one.
func IsName(name string) bool { return IsToken(name) && !strings.EqualFold(name, "Host") }

// IsToken reports whether s is a token of RFC 9110, section 5.6.2.
func IsToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// HasAny reports whether r has one of the headers, in canonical form.
func HasAny(r *http.Request, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, has := r.Header[name]; return has })
}
