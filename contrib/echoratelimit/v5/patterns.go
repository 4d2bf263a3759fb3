package echoratelimit

import (
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
)

// unmatched is the path of all requests that match no route, as in a key of Route under chi.
const unmatched = "unmatched"

// methods are those that net/http names. Clients make up others, which are no part of a pattern.
var methods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch,
	http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

// maxPaths bounds the paths of patterns. echo has a finite number of them, but middleware can set others.
const maxPaths = 1000

// patterns are the patterns of routes, in the order of methods, by path. They are kept because to put one together takes
// a tenth of the time of a decision.
type patterns struct {
	byPath atomic.Pointer[map[string][]string]
}

// of returns the pattern of a route, such as "GET /users/:id".
func (p *patterns) of(method, path string) string {
	i := slices.Index(methods, method)
	if i < 0 || path == unmatched {
		return path
	}
	var known map[string][]string
	current := p.byPath.Load()
	if current != nil {
		known = *current
	}
	if of := known[path]; of != nil {
		return of[i]
	}
	if len(known) < maxPaths {
		more := make(map[string][]string, len(known)+1)
		maps.Copy(more, known)
		for _, m := range methods {
			more[path] = append(more[path], m+" "+path)
		}
		p.byPath.CompareAndSwap(current, &more)
	}
	return method + " " + path
}
