package skip

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// Paths exempts requests that match one of patterns, by the rules of http.ServeMux:
// "/healthz", "GET /healthz" (and HEAD), "/static/" and all below, "/metrics/{$}", "/{id}/ping". A pattern
// without a method exempts all methods, so name one where you can.
//
// It knows patterns alone, not your routes: "/static/" exempts "/static/upload", too, if there is such a
// route. It looks at Request.Method and Request.URL as the limiter sees them: what changes these
// (http.StripPrefix, a method override, chi's PathRewrite) must come before the limiter.
//
// It never exempts a path that a router, or a server behind a proxy, may read as another one:
//
//   - One that is not clean, such as "//healthz" and "/export/../healthz", or that has unusual escapes.
//   - One with a semicolon, backslash, control character, percent sign, "?", "#" or a character outside ASCII, all
//     also if they are escaped, as in "/static/..;/login" and "/static/..%5Clogin".
//   - One with a segment that begins with "..", ends with a dot, or has a blank or a plus sign at either end.
//   - "*", any path of CONNECT, and one of a request with a header that names another path or method, such as
//     X-Original-URL or X-HTTP-Method-Override.
//
// It panics without patterns, and on those that http.ServeMux refuses; that could never match; that match
// everything; and that name a host, which clients can choose. Patterns may overlap.
func Paths(patterns ...string) func(*http.Request) bool {
	exemptions := make([]exemption, len(patterns))
	var faults []string
	for i, pattern := range patterns {
		var err error
		if exemptions[i], err = newExemption(pattern); err != nil {
			faults = append(faults, fmt.Sprintf("patterns: %q: %v", pattern, err))
		}
	}
	if len(patterns) == 0 {
		faults = append(faults, `patterns: must have at least one, such as "GET /healthz"`)
	}
	mustBeFaultless("Paths", faults)
	return func(r *http.Request) bool {
		for i := range exemptions {
			if exemptions[i].matches(r) {
				return true
			}
		}
		return false
	}
}

// An exemption is one pattern of Paths. Each has a ServeMux of its own, because one for all would refuse
// patterns of which neither is more specific, and it does not matter here which of them matches.
type exemption struct {
	mux    *http.ServeMux
	prefix string // of what may match: a ServeMux allocates for what does not
}

func newExemption(pattern string) (exemption, error) {
	method, path := splitPattern(pattern)
	everything := strings.HasPrefix(path, "/{") && strings.HasSuffix(path, "...}") && strings.Count(path, "/") == 1
	switch {
	case path == "/":
		return exemption{}, errors.New(`matches every path: for the root alone write "/{$}"`)
	case method == "" && everything:
		return exemption{}, errors.New("matches every request: nothing would be limited")
	case strings.Index(path, "/") > 0:
		return exemption{}, errors.New("must not name a host: clients can choose it")
	}
	prefix, example := literalPath(path)
	e := exemption{http.NewServeMux(), prefix}
	if err := handle(e.mux, pattern); err != nil {
		return exemption{}, err
	}
	if !e.matches(&http.Request{Method: cmp.Or(method, http.MethodGet), URL: &url.URL{Path: example}}) {
		return exemption{}, errors.New("would never match: the path must be clean, without escaped slashes and whatever Paths never exempts, and the method not CONNECT")
	}
	return e, nil
}

func (e *exemption) matches(r *http.Request) bool {
	path := r.URL.Path
	if !strings.HasPrefix(path, e.prefix) || r.Method == http.MethodConnect || r.URL.RawPath != "" && r.URL.RawPath != path || isAmbiguous(path) {
		return false
	}
	h, _ := e.mux.Handler(r) // what is redirected has another handler, though the same pattern
	_, matches := h.(exempt)
	return matches && !requestheader.HasAny(r, overriding[:])
}

// overriding are headers by which a server behind the limiter may take another path, or method.
var overriding = [...]string{"X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// isAmbiguous reports whether a server behind the limiter may read a path, which has been unescaped once, as
// another one. Some cut parameters off each segment (";"), take a backslash for a slash, remove control characters
// or stop at them, unescape twice ("%"), or pass the path on unescaped ("?", "#"). Some change what is not ASCII:
// they fold full-width forms, normalize, cut a rune to its low byte, or accept overlong UTF-8. Some remove blanks
// around a segment and dots at its end, and some read a plus sign as a blank.
func isAmbiguous(path string) bool {
	before := byte('/')
	for i := range len(path) {
		c := path[i]
		switch {
		case c < ' ' || c > '~', c == ';', c == '\\', c == '%', c == '?', c == '#':
			return true
		case c == '/' && endsOddly(before), before == '/' && (c == ' ' || c == '+'):
			return true
		case before == '/' && strings.HasPrefix(path[i:], ".."):
			return true
		}
		before = c
	}
	return endsOddly(before)
}

// endsOddly reports whether c, at the end of a segment, may be lost.
func endsOddly(c byte) bool { return c == ' ' || c == '+' || c == '.' }

// exempt is the handler of an exemption. It is never called.
type exempt struct{}

func (exempt) ServeHTTP(http.ResponseWriter, *http.Request) {}

// handle adds pattern to mux, with an error for what http.ServeMux panics on.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	mux.Handle(pattern, exempt{})
	return nil
}

// splitPattern returns the method of a pattern, "" for any, and the rest, as http.ServeMux has it.
func splitPattern(pattern string) (method, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i], strings.TrimLeft(pattern[i+1:], " \t")
	}
	return "", pattern
}

// literalPath returns what all paths that match the path of a pattern start with, and one of them.
func literalPath(pattern string) (prefix, example string) {
	literal, _, _ := strings.Cut(pattern, "{")
	example = wildcard.ReplaceAllLiteralString(strings.TrimSuffix(pattern, "{$}"), "x")
	return unescapePath(literal), unescapePath(example)
}

var wildcard = regexp.MustCompile(`\{[^/]*\}`)

// unescapePath unescapes what stands between slashes, if it can, as http.ServeMux does with patterns.
func unescapePath(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if unescaped, err := url.PathUnescape(s); err == nil {
			segments[i] = unescaped
		}
	}
	return strings.Join(segments, "/")
}
