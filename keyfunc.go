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

	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A KeyFunc returns the key of a request, such as "member:5" or "ip:192.0.2.1". Requests with the same key share one
// bucket of each policy. A key may hold any bytes. Start it with its kind and a colon, as all functions of this package
// do: then a name that a client chose is never taken for an address.
//
// The error decides what happens. If it wraps several of these, the first one in this list counts:
//   - [ErrBadRequest]: the request is answered 400.
//   - [ErrOutage]: as if the store failed. The policy is left out, or with [Policy.FailClosed] the answer is 503.
//   - [ErrNoKey], or an empty key: the request is answered 403. With [Policy.Optional] the policy is left out.
//   - Any other error: the request is answered 503, because a client may have caused it.
type KeyFunc func(*http.Request) (string, error)

var (
	// ErrNoKey is the error of a [KeyFunc] for a request without a key. The request is answered 403,
	// unless [FirstOf] finds another key or the policy is [Policy.Optional].
	ErrNoKey = failure.ErrNoKey

	// ErrBadRequest is the error of a [KeyFunc] for a request whose key is malformed or ambiguous, such
	// as one with two Authorization headers. The request is answered 400, even under [Policy.Optional],
	// [FirstOf] and [Join], because the application might still find an identity in it.
	ErrBadRequest = failure.ErrBadRequest

	// ErrOutage is the error of a [KeyFunc] that cannot find the key because another system failed, such
	// as a user directory. The request is let through without the policy, or answered 503 with
	// [Policy.FailClosed]. Wrap it only around errors that no client can cause. If the request's own
	// context has ended, the request is refused.
	ErrOutage = failure.ErrOutage
)

// Static returns the same key for all requests, "static:<key>". The limit then applies to all clients together. It
// panics if key is empty.
func Static(key string) KeyFunc {
	if key == "" {
		panic("ratelimit: Static: key must not be empty")
	}
	key = "static:" + key
	return func(r *http.Request) (string, error) {
		dryrun.OfRequest(r).Name("Static")
		return key, nil
	}
}

// Header uses the value of a request header, such as an API key. The key is "header:<name>:<SHA-256>", so only the hash
// leaves the process.
//
// The client chooses the value. Use Header only behind a check of it. Otherwise each value that a client makes up has a
// new bucket.
// A request without the header, or with an empty one, has no key ([ErrNoKey]). A repeated header, and one of more than
// 64 KiB, is [ErrBadRequest].
// Header panics if name is not a valid name of a request header, and on Host.
func Header(name string) KeyFunc {
	if !requestheader.IsName(name) {
		panic(fmt.Sprintf("ratelimit: Header: name %q: must be the name of a request header, and not Host", name))
	}
	kind, called := "header:"+strings.ToLower(name)+":", "Header "+name
	single := requestheader.Single(name)
	return func(r *http.Request) (string, error) {
		value, err := single(r)
		run := dryrun.OfRequest(r)
		run.Name(called)
		run.Secret(value, "the value of the header")
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(value))
		return kind + base64.RawURLEncoding.EncodeToString(sum[:]), nil
	}
}

// ContextKey uses the identity that an authentication before the limiter has put into the request's context. f reads it
// from there. The key is "<kind>:<identity>": with the kind "member", that of member 5 is "member:5". If f returns false
// or an empty identity, the request has no key ([ErrNoKey]).
//
// ContextKey panics if f is nil, or if kind is one that this package uses, such as "ip", or has more than letters, digits,
// "-" and "_". See https://github.com/go-tokenbucket/ratelimit/blob/main/docs/identity.md.
func ContextKey(kind string, f func(context.Context) (identity string, ok bool)) KeyFunc {
	if err := keyname.CheckKind(kind); err != nil {
		panic(fmt.Sprintf("ratelimit: ContextKey: kind %q: %v", kind, err))
	}
	if f == nil {
		panic("ratelimit: ContextKey: f must not be nil")
	}
	called, prefix := "ContextKey "+kind, kind+":"
	return func(r *http.Request) (string, error) {
		identity, ok := f(r.Context())
		dryrun.OfRequest(r).Name(called)
		if !ok || identity == "" {
			return "", errNoIdentity
		}
		return prefix + identity, nil
	}
}

var errNoIdentity = failure.New(ErrNoKey, "the context holds no identity: is the authentication mounted before the limiter?")

// FirstOf uses the first of fns that returns a key: FirstOf(members.Claim("sub"), RemoteIP()) counts members by id and
// guests by address. It tries the next one only after [ErrNoKey] or an empty key, and returns any other error. It
// panics without fns, and if one is nil.
func FirstOf(fns ...KeyFunc) KeyFunc {
	fns = mustHave("FirstOf", fns)
	return func(r *http.Request) (string, error) {
		dryrun.OfRequest(r).Name("FirstOf")
		var why failure.Reasons
		for _, f := range fns {
			key, err := keyBy(f, r)
			if err == nil {
				return key, nil
			}
			if !failure.IsNoKey(err) {
				return "", err
			}
			why.Add(err)
		}
		return "", why.Err()
	}
}

// Join combines the keys of all fns, so that each combination has its own bucket: Join(RemoteIP(), Route()) limits each
// client on each route. The key is "join:<key>|<key>", and different combinations never make the same key.
//
// If one of fns returns an error, Join returns it. An [ErrBadRequest] comes before other errors. Join panics without
// fns, and if one is nil.
func Join(fns ...KeyFunc) KeyFunc {
	fns = mustHave("Join", fns)
	escape := strings.NewReplacer("%", "%25", "|", "%7C")
	return func(r *http.Request) (string, error) {
		dryrun.OfRequest(r).Name("Join")
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
				continue // a later one may still return ErrBadRequest
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

// keyBy returns the key of f, or an error if that is empty.
func keyBy(f KeyFunc, r *http.Request) (string, error) {
	if run := dryrun.OfRequest(r); run != nil {
		return explainKey(run, f, r)
	}
	return checkKey(f(r))
}

// explainKey is keyBy for a request that is explained.
func explainKey(run *dryrun.Run, f KeyFunc, r *http.Request) (key string, err error) {
	step := run.Open(f)
	err = dryrun.ErrPanicked
	defer func() { run.Close(step, key, err) }()
	key, err = checkKey(f(r))
	return key, err
}

func checkKey(key string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", errEmptyKey
	}
	return key, nil
}

var errEmptyKey = failure.New(ErrNoKey, "the KeyFunc returned an empty one")

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
