package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A KeyFunc finds whom a request counts for: a key like "member:5", "ip:192.0.2.1". Requests of one key
// share one bucket of each policy.
//
// Errors are told apart by errors.Is. If an error wraps several of these, the first one here counts:
//   - ErrBadRequest: what the request says about its key is malformed or ambiguous. It is answered 400.
//   - ErrOutage: the KeyFunc could not find out. It is handled as a failure of the store.
//   - ErrNoKey: the request has no such key. It is answered 403, or goes on without the policy if that is Optional.
//   - Any other error: the request is answered 503, because a client may have caused it.
//
// The keys of this package's functions start with their kind and a colon, so that a name which a client
// chose is never mistaken for an address. Keys may hold any bytes.
type KeyFunc func(*http.Request) (string, error)

var (
	// ErrNoKey is the error of a KeyFunc for a request that has no key: it is answered 403. Policy.Optional and
	// FirstOf pass over it.
	ErrNoKey = keyerr.ErrNoKey

	// ErrBadRequest is the error of a KeyFunc for a request that is malformed or ambiguous where its key should
	// be, such as one with two Authorization headers: it is answered 400. Neither Policy.Optional nor FirstOf nor
	// Join passes over it, because the application might still see an identity in such a request.
	ErrBadRequest = keyerr.ErrBadRequest

	// ErrOutage is the error of a KeyFunc that could not find out because something else failed, such as a
	// directory that it asks. It is handled as a failure of the store: the request is let through without the
	// policy, or answered 503 with Policy.FailClosed. Wrap it only around errors that no client can cause. After the
	// request's own context has ended it is not an outage, and refuses the request.
	ErrOutage = keyerr.ErrOutage
)

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
// the header is absent or empty. ErrBadRequest: it is repeated. It panics if name is not one of a header that
// requests have.
func Header(name string) KeyFunc {
	if !requestheader.IsName(name) {
		panic(fmt.Sprintf("ratelimit: Header: name %q: must be that of a request header, and not Host", name))
	}
	kind := "header:" + strings.ToLower(name) + ":"
	single := requestheader.Single(name)
	return func(r *http.Request) (string, error) {
		value, err := single(r)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(value))
		return kind + base64.RawURLEncoding.EncodeToString(sum[:]), nil
	}
}

// ContextKey returns a name that an authentication layer before the limiter has put into the request's context, as
// "context:<name>". It returns ErrNoKey if f returns false or an empty name. It panics if f is nil.
func ContextKey(f func(context.Context) (string, bool)) KeyFunc {
	if f == nil {
		panic("ratelimit: ContextKey: f must not be nil")
	}
	return func(r *http.Request) (string, error) {
		name, ok := f(r.Context())
		if !ok || name == "" {
			return "", errNoName
		}
		return "context:" + name, nil
	}
}

var errNoName = keyerr.New(ErrNoKey, "the context holds no name: is the authentication mounted before the limiter?")

// FirstOf is the key of the first of fns that finds one: FirstOf(members.Claim("sub"), RemoteIP()) counts
// members by id and guests by address. It moves on only after ErrNoKey, or an empty key. It panics without fns.
func FirstOf(fns ...KeyFunc) KeyFunc {
	fns = mustHave("FirstOf", fns)
	return func(r *http.Request) (string, error) {
		var why keyerr.Reasons
		for _, f := range fns {
			key, err := keyBy(f, r)
			if err == nil {
				return key, nil
			}
			if !keyerr.IsNoKey(err) {
				return "", err
			}
			why.Add(err)
		}
		return "", why.Err()
	}
}

// Join is the keys of all fns together, as "join:<key>|<key>": a bucket for each combination. No two
// combinations make the same key. No key: one of fns has none. ErrBadRequest of one of fns comes before the
// errors of the others. It panics without fns.
func Join(fns ...KeyFunc) KeyFunc {
	fns = mustHave("Join", fns)
	escape := strings.NewReplacer("%", "%25", "|", "%7C")
	return func(r *http.Request) (string, error) {
		var joined strings.Builder
		joined.WriteString("join:")
		var failed error
		for i, f := range fns {
			key, err := keyBy(f, r)
			if errors.Is(err, ErrBadRequest) {
				return "", err
			}
			if failed == nil {
				failed = err
			}
			if failed != nil {
				continue // a later one may still find that the request is bad
			}
			if i > 0 {
				joined.WriteByte('|')
			}
			escape.WriteString(&joined, key)
		}
		if failed != nil {
			return "", failed
		}
		return joined.String(), nil
	}
}

// keyBy returns what f finds: a key that is not empty, or an error.
func keyBy(f KeyFunc, r *http.Request) (string, error) {
	key, err := f(r)
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", errEmptyKey
	}
	return key, nil
}

var errEmptyKey = keyerr.New(ErrNoKey, "the KeyFunc returned an empty one")

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
