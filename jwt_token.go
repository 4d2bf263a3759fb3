package ratelimit

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// A TokenFunc finds the token of a request, for JWTConfig.Tokens: exactly one, or none. It need not judge
// whether the token is any good.
type TokenFunc func(*http.Request) (token string, ok bool)

// BearerToken is the token of the Authorization header (RFC 6750, section 2.1), with the scheme in any case
// and any number of spaces after it. None: the header is absent, repeated, of another scheme or malformed.
func BearerToken() TokenFunc {
	return func(r *http.Request) (string, bool) {
		values := r.Header["Authorization"]
		if len(values) != 1 {
			return "", false
		}
		return afterBearer(values[0])
	}
}

// HeaderToken is the value of another header, of a gateway's for example, with "Bearer " before the token or
// without. None: the header is absent, empty, repeated, or holds more than a token. It panics if name is not
// one of a header that requests have.
func HeaderToken(name string) TokenFunc {
	if !isHeaderName(name) {
		panic(fmt.Sprintf("ratelimit: HeaderToken: name %q: must be that of a request header, and not Host", name))
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	return func(r *http.Request) (string, bool) {
		values := r.Header[canonical]
		if len(values) != 1 {
			return "", false
		}
		if token, ok := afterBearer(values[0]); ok {
			return token, true
		}
		return oneWord(values[0])
	}
}

// CookieToken is the value of a cookie, which may be quoted. None: the cookie is absent or empty, or there
// are several of that name, as when another site of the domain has set one, too: nobody could tell which is
// meant. A name like "__Host-token" keeps other sites from doing so. It panics if name is not one that
// cookies have.
func CookieToken(name string) TokenFunc {
	if (&http.Cookie{Name: name}).Valid() != nil {
		panic(fmt.Sprintf("ratelimit: CookieToken: name %q: must be that of a cookie", name))
	}
	return func(r *http.Request) (string, bool) {
		value, ok := onlyCookie(r.Header["Cookie"], name)
		if !ok {
			return "", false
		}
		if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1]
		}
		return oneWord(value)
	}
}

// onlyCookie returns the value of the one cookie of that name. It does not judge the value as
// Request.CookiesNamed does, which takes longer than all the rest, because a token that is not one is not
// valid anyway. And so it counts cookies that are malformed, too.
func onlyCookie(lines []string, name string) (value string, ok bool) {
	for _, line := range lines {
		for cookie := range strings.SplitSeq(line, ";") {
			its, text, _ := strings.Cut(cookie, "=")
			if textproto.TrimString(its) != name {
				continue
			}
			if ok {
				return "", false
			}
			value, ok = textproto.TrimString(text), true
		}
	}
	return value, ok
}

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
func firstToken(tokens []TokenFunc, r *http.Request) (string, bool) {
	for _, find := range tokens {
		if token, ok := find(r); ok {
			return token, true
		}
	}
	return "", false
}
