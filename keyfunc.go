package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// A KeyFunc finds whom a request counts for: a key like "member:5", "ip:192.0.2.1". Requests of one key
// share one bucket of each policy.
//
// A KeyFunc returns ErrNoKey, or an error that wraps it, for a request that has no such key, whatever the
// client did wrong: the request is then answered 403, or goes on without the policy if that is Optional.
// Any other error means that it could not find out, and is handled as a failure of the store.
//
// The keys of this package's functions start with their kind and a colon, so that a name which a client
// chose is never mistaken for an address. Keys may hold any bytes.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is the error of a KeyFunc for a request that has no key.
var ErrNoKey = errors.New("ratelimit: no key")

// Static is one key, "static:<key>", for all requests: the policy's limit is for all clients together. It
// panics if key is empty.
func Static(key string) KeyFunc {
	if key == "" {
		panic("ratelimit: Static: key must not be empty")
	}
	key = "static:" + key
	return func(*http.Request) (string, error) { return key, nil }
}

// Header is the value of a request header, such as an API key's, as "header:<name>:<SHA-256>". Only the
// hash leaves the process. The client chooses the value: use it behind something that checked it. No key:
// the header is absent, empty or repeated. It panics if name is not one of a header that requests have.
func Header(name string) KeyFunc {
	if !isHeaderName(name) {
		panic(fmt.Sprintf("ratelimit: Header: name %q: must be that of a request header, and not Host", name))
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	kind := "header:" + strings.ToLower(name) + ":"
	return func(r *http.Request) (string, error) {
		values := r.Header[canonical]
		if len(values) != 1 || values[0] == "" {
			return "", ErrNoKey
		}
		sum := sha256.Sum256([]byte(values[0]))
		return kind + base64.RawURLEncoding.EncodeToString(sum[:]), nil
	}
}

// isHeaderName reports whether name is a token under which http.Request.Header can have values; it never has
// Host.
func isHeaderName(name string) bool { return isToken(name) && !strings.EqualFold(name, "Host") }

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
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

// ContextKey is a name that an authentication layer before the limiter put into the request's context, as
// "context:<name>". No key: f returns false or an empty name. It panics if f is nil.
func ContextKey(f func(context.Context) (string, bool)) KeyFunc {
	if f == nil {
		panic("ratelimit: ContextKey: f must not be nil")
	}
	return func(r *http.Request) (string, error) {
		name, ok := f(r.Context())
		if !ok || name == "" {
			return "", ErrNoKey
		}
		return "context:" + name, nil
	}
}

// FirstOf is the key of the first of fns that finds one: FirstOf(members.Claim("sub"), RemoteIP()) counts
// members by id and guests by address. It moves on only after ErrNoKey, or an empty key. It panics
// without fns.
func FirstOf(fns ...KeyFunc) KeyFunc {
	fns = mustHave("FirstOf", fns)
	return func(r *http.Request) (string, error) {
		for _, f := range fns {
			key, err := f(r)
			if err == nil && key != "" {
				return key, nil
			}
			if err != nil && !errors.Is(err, ErrNoKey) {
				return "", err
			}
		}
		return "", ErrNoKey
	}
}

// Join is the keys of all fns together, as "join:<key>|<key>": a bucket for each combination. No two
// combinations make the same key. No key: one of fns has none. It panics without fns.
func Join(fns ...KeyFunc) KeyFunc {
	fns = mustHave("Join", fns)
	escape := strings.NewReplacer("%", "%25", "|", "%7C")
	return func(r *http.Request) (string, error) {
		var joined strings.Builder
		joined.WriteString("join:")
		for i, f := range fns {
			key, err := f(r)
			if err != nil {
				return "", err
			}
			if key == "" {
				return "", ErrNoKey
			}
			if i > 0 {
				joined.WriteByte('|')
			}
			escape.WriteString(&joined, key)
		}
		return joined.String(), nil
	}
}

// mustHave returns a copy of fns, and panics if there are none or one is nil.
func mustHave(name string, fns []KeyFunc) []KeyFunc {
	if len(fns) == 0 {
		panic("ratelimit: " + name + ": must have at least one KeyFunc")
	}
	for _, f := range fns {
		if f == nil {
			panic("ratelimit: " + name + ": no KeyFunc may be nil")
		}
	}
	return slices.Clone(fns)
}
