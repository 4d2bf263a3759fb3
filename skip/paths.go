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

// Paths exempts requests that match one of patterns, with the syntax of http.ServeMux: "GET /healthz" (also HEAD),
// "/healthz", "/static/" and all paths below, "/metrics/{$}", "/{id}/ping". Without a method, a pattern exempts all
// methods. Patterns may overlap. Ambiguous paths are never exempt, see "Paths that are never exempt" in the package
// comment.
//
// Paths does not know your routes: "/static/" also exempts "/static/upload". It uses the method and URL that the
// limiter sees. It panics if patterns is empty, or has one that http.ServeMux refuses, that never matches, that
// matches everything, or that names a host, because clients choose the host.
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

// An exemption is one pattern of Paths. Each has its own ServeMux: a shared one would refuse two patterns if
// neither is more specific, and here it does not matter which of them matches.
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
		return exemption{}, errors.New("would never match: the path must be clean, without escaped slashes and without anything that Paths never exempts, and the method must not be CONNECT")
	}
	return e, nil
}

func (e *exemption) matches(r *http.Request) bool {
	path := r.URL.Path
	if len(path) > maxPath || !strings.HasPrefix(path, e.prefix) || r.Method == http.MethodConnect || r.URL.RawPath != "" && r.URL.RawPath != path || isAmbiguous(path) {
		return false
	}
	h, _ := e.mux.Handler(r) // what is redirected has another handler, though the same pattern
	_, matches := h.(exempt)
	return matches && !requestheader.HasAny(r, overriding[:])
}

// maxPath bounds a path that is exempt, in bytes, because to look at a path of a megabyte takes milliseconds. Most servers
// refuse a longer one.
const maxPath = 8 << 10

// overriding are headers that make some servers behind the limiter use another path or method.
var overriding = [...]string{"X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// isAmbiguous reports whether a server behind the limiter may read a path as another one, although it was unescaped
// only once. Some servers do this:
//   - cut parameters off each segment (";")
//   - take a backslash for a slash
//   - remove control characters, or stop at them
//   - unescape twice ("%"), or pass the path on unescaped ("?", "#")
//   - change characters outside ASCII: fold full-width forms, normalize, cut a rune to its low byte, accept
//     overlong UTF-8
//   - remove blanks around a segment and dots at its end, or read a plus sign as a blank
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

// endsOddly reports whether a server may drop c at the end of a segment.
func endsOddly(c byte) bool { return c == ' ' || c == '+' || c == '.' }

// exempt is the handler of an exemption. It is never called.
type exempt struct{}

func (exempt) ServeHTTP(http.ResponseWriter, *http.Request) {}

// handle adds pattern to mux. It returns an error where http.ServeMux panics.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	mux.Handle(pattern, exempt{})
	return nil
}

// splitPattern returns the method of a pattern and the rest, as http.ServeMux splits it. The method is "" for any.
func splitPattern(pattern string) (method, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i], strings.TrimLeft(pattern[i+1:], " \t")
	}
	return "", pattern
}

// literalPath returns the common prefix of all paths that match the path of a pattern, and one of these paths.
func literalPath(pattern string) (prefix, example string) {
	literal, _, _ := strings.Cut(pattern, "{")
	example = wildcard.ReplaceAllLiteralString(strings.TrimSuffix(pattern, "{$}"), "x")
	return unescapePath(literal), unescapePath(example)
}

var wildcard = regexp.MustCompile(`\{[^/]*\}`)

// unescapePath unescapes each segment if it can, as http.ServeMux does with patterns.
func unescapePath(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if unescaped, err := url.PathUnescape(s); err == nil {
			segments[i] = unescaped
		}
	}
	return strings.Join(segments, "/")
}
