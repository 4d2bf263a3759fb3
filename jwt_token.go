package ratelimit

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// A TokenFunc finds the token of a request, for JWTConfig.Tokens. It need not judge whether the token is any good.
//
// The error is ErrNoKey if there is none, after which the next TokenFunc is asked, and ErrBadRequest if the request
// has several and nobody can tell which is meant. Other errors are those of a KeyFunc.
type TokenFunc func(*http.Request) (string, error)

// BearerToken is the token of the Authorization header (RFC 6750, section 2.1), with the scheme in any case
// and any number of spaces after it. ErrNoKey: the header is absent, of another scheme or malformed.
// ErrBadRequest: it is repeated.
func BearerToken() TokenFunc {
	header := singleHeader("Authorization")
	return func(r *http.Request) (string, error) {
		value, err := header(r)
		if err != nil {
			return "", err
		}
		if token, ok := afterBearer(value); ok {
			return token, nil
		}
		return "", errNoBearer
	}
}

var errNoBearer = fmt.Errorf("%w: no Bearer token in Authorization", ErrNoKey)

// HeaderToken is the value of another header, of a gateway's for example, with "Bearer " before the token or
// without. ErrNoKey: the header is absent, empty, or holds more than a token. ErrBadRequest: it is repeated. It
// panics if name is not one of a header that requests have.
func HeaderToken(name string) TokenFunc {
	if !isHeaderName(name) {
		panic(fmt.Sprintf("ratelimit: HeaderToken: name %q: must be that of a request header, and not Host", name))
	}
	header := singleHeader(name)
	none := fmt.Errorf("%w: no token in header %s", ErrNoKey, textproto.CanonicalMIMEHeaderKey(name))
	return func(r *http.Request) (string, error) {
		value, err := header(r)
		if err != nil {
			return "", err
		}
		if token, ok := afterBearer(value); ok {
			return token, nil
		}
		if token, ok := oneWord(value); ok {
			return token, nil
		}
		return "", none
	}
}

// CookieToken is the value of a cookie. Of several with that name, the one counts that http.Request.Cookie returns,
// so that an application which uses it sees the same. A name like "__Host-token" keeps other sites of the domain
// from setting one. ErrNoKey: the cookie is absent, empty, or holds more than a token. ErrBadRequest: the Cookie
// header is longer than 32 KiB. It panics if name is not one that cookies have.
func CookieToken(name string) TokenFunc {
	if (&http.Cookie{Name: name}).Valid() != nil {
		panic(fmt.Sprintf("ratelimit: CookieToken: name %q: must be that of a cookie", name))
	}
	none := fmt.Errorf("%w: no token in cookie %s", ErrNoKey, name)
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
		if token, ok := oneWord(cookie.Value); ok {
			return token, nil
		}
		return "", none
	}
}

// maxCookies bounds the Cookie headers that are read, in bytes: megabytes of them take milliseconds. Browsers send
// far less. What is longer is not taken for a request without a cookie, because an application may find one in it.
const maxCookies = 32 << 10

var errLongCookies = fmt.Errorf("%w: more than %d bytes of cookies", ErrBadRequest, maxCookies)

// afterBearer returns the token after the scheme "Bearer".
func afterBearer(value string) (string, bool) {
	scheme, token, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return oneWord(token)
}

// oneWord returns text without the spaces around it, if that is something without a space in it.
func oneWord(text string) (string, bool) {
	text = strings.Trim(text, " ")
	return text, text != "" && !strings.Contains(text, " ")
}

// firstToken returns the first token that one of tokens finds.
func firstToken(tokens []TokenFunc, r *http.Request) (string, error) {
	var why reasons
	for _, find := range tokens {
		token, err := find(r)
		if err == nil {
			return token, nil
		}
		if !isNoKey(err) {
			return "", err
		}
		why.add(err)
	}
	return "", why.err()
}
