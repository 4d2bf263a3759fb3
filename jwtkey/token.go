package jwtkey

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A TokenFunc finds the token in a request, for [Config.Tokens]. It does not verify the token.
//
// It returns [ratelimit.ErrNoKey] if the request has no token: then the next TokenFunc is called. It returns
// [ratelimit.ErrBadRequest] if the request has several tokens, or a malformed one. Other errors are handled like
// those of a [ratelimit.KeyFunc].
type TokenFunc func(*http.Request) (string, error)

// BearerToken finds the token in the Authorization header: "Bearer" in upper or lower case, one or more spaces, and
// one token (RFC 6750, section 2.1). It returns [ratelimit.ErrNoKey] if the header is absent, if it has another
// scheme such as Basic, or if it is "Bearer" alone.
//
// It returns [ratelimit.ErrBadRequest] if the header is repeated, or if it names Bearer in any other form, such as
// "Bearer<TAB>token" or "Bearer token x". Some applications find a token in such a header. The same holds for a token
// of more than 8 KiB, and for another header of more than 64 KiB.
func BearerToken() TokenFunc {
	header := requestheader.Single("Authorization")
	return func(r *http.Request) (string, error) {
		value, err := header(r)
		if err != nil {
			return "", err
		}
		switch token, named, ok := cutBearer(value); {
		case named && !ok:
			return "", badToken(value, errBadBearer)
		case token == "":
			return "", errNoBearer
		default:
			noteToken(r, "Authorization has a Bearer token")
			return token, nil
		}
	}
}

var (
	errNoBearer  = failure.New(ratelimit.ErrNoKey, "no Bearer token in Authorization")
	errBadBearer = failure.New(ratelimit.ErrBadRequest, `Authorization is not "Bearer", spaces and one token`)
)

// HeaderToken finds the token in another header, for example one that a gateway sets, with or without "Bearer "
// before it. It returns [ratelimit.ErrNoKey] if the header is absent or empty. It returns [ratelimit.ErrBadRequest]
// if the header is repeated, or if it holds anything other than one token (RFC 6750, section 2.1) of at most 8 KiB. It panics if
// name is not a valid name of a request header, or is Host.
func HeaderToken(name string) TokenFunc {
	if !requestheader.IsName(name) {
		panic(fmt.Sprintf("jwtkey: HeaderToken: name %q: must be the name of a request header other than Host", name))
	}
	header, canonical := requestheader.Single(name), textproto.CanonicalMIMEHeaderKey(name)
	has := "header " + canonical + " has a token"
	none := failure.New(ratelimit.ErrNoKey, "no token in header %s", canonical)
	malformed := failure.New(ratelimit.ErrBadRequest, "header %s does not hold one token", canonical)
	return func(r *http.Request) (string, error) {
		value, err := header(r)
		if err != nil {
			return "", err
		}
		token, named, ok := cutBearer(value)
		if !named {
			token, ok = oneToken(value)
		}
		switch {
		case !ok:
			return "", badToken(value, malformed)
		case token == "":
			return "", none
		default:
			noteToken(r, has)
			return token, nil
		}
	}
}

// CookieToken finds the token in a cookie. If several cookies have the name, it uses the one that
// http.Request.Cookie returns. A name that begins with "__Host-" keeps other sites of the same domain from setting
// the cookie.
//
// It returns [ratelimit.ErrNoKey] if the cookie is absent or empty. It returns [ratelimit.ErrBadRequest] if the cookie
// holds anything other than one token of at most 8 KiB (RFC 6750, section 2.1). The error is the same if the Cookie headers
// are longer than 32 KiB. It panics if name is not a valid name of a cookie.
func CookieToken(name string) TokenFunc {
	if (&http.Cookie{Name: name}).Valid() != nil {
		panic(fmt.Sprintf("jwtkey: CookieToken: name %q: must be the name of a cookie", name))
	}
	has := "cookie " + name + " has a token"
	none := failure.New(ratelimit.ErrNoKey, "no token in cookie %s", name)
	malformed := failure.New(ratelimit.ErrBadRequest, "cookie %s does not hold one token", name)
	return func(r *http.Request) (string, error) {
		length := 0
		for _, line := range r.Header["Cookie"] {
			if length += len(line); length > maxCookies {
				return "", errLongCookies
			}
		}
		cookie, err := r.Cookie(name)
		if err != nil {
			return "", none
		}
		switch token, ok := oneToken(cookie.Value); {
		case !ok:
			return "", badToken(cookie.Value, malformed)
		case token == "":
			return "", none
		default:
			noteToken(r, has)
			return token, nil
		}
	}
}

// badToken returns the error of a value that does not hold one token: malformed, or that it is too long to be one.
func badToken(value string, malformed error) error {
	if len(value) > maxToken {
		return errLongToken
	}
	return malformed
}

// maxCookies bounds the Cookie headers that are parsed, in bytes, because megabytes of them take milliseconds.
// Browsers send far less. A longer header is an error and not a missing cookie, because an application may find one
// in it.
const maxCookies = 32 << 10

var errLongCookies = failure.New(ratelimit.ErrBadRequest, "more than %d bytes of cookies", maxCookies)

// cutBearer returns the token after the scheme Bearer, or "" if there is none. The result named reports whether an
// application may see the scheme in value. The result ok reports whether value then has the form of RFC 6750.
func cutBearer(value string) (token string, named, ok bool) {
	if scheme, rest, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Bearer") {
		token, ok = oneToken(rest)
		return token, true, ok
	}
	return "", namesBearer(value), false
}

// namesBearer reports whether an application may see the scheme Bearer in value, in any case. It looks at the
// start, after any bytes that cannot begin a scheme, and anywhere before a byte that cannot be part of a token.
// Credentials of Basic hold no such byte.
//
// Some applications split at any blank, some cut off the first seven bytes, some take the text after "Bearer ".
func namesBearer(value string) bool {
	const scheme = "Bearer"
	start := 0
	for start < len(value) && !requestheader.IsToken(value[start:start+1]) {
		start++
	}
	for i := start; i+len(scheme) <= len(value); i++ {
		if end := i + len(scheme); value[i]|0x20 == 'b' && strings.EqualFold(value[i:end], scheme) &&
			(i == start || end < len(value) && !isTokenByte(value[end])) {
			return true
		}
	}
	return false
}

// oneToken returns text without the spaces around it, if that is one token or nothing. It does not look into what is
// too long for a token.
func oneToken(text string) (token string, ok bool) {
	if text = strings.Trim(text, " "); len(text) > maxToken {
		return "", false
	}
	unpadded := strings.TrimRight(text, "=")
	for i := range len(unpadded) {
		if c := unpadded[i]; c == '=' || !isTokenByte(c) {
			return "", false
		}
	}
	return text, unpadded != "" || text == ""
}

// isTokenByte reports whether c can be part of a token: b64token of RFC 6750, section 2.1.
func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-._~+/=", c) >= 0
}

// firstToken returns the first token that one of tokens finds.
func firstToken(tokens []TokenFunc, r *http.Request) (string, error) {
	var why failure.Reasons
	run := dryrun.OfRequest(r)
	for i, find := range tokens {
		token, err := find(r)
		if run != nil {
			noteFound(run, i, token, err)
		}
		if err == nil {
			return token, nil
		}
		if !failure.IsNoKey(err) {
			return "", err
		}
		why.Add(err)
	}
	return "", why.Err()
}
