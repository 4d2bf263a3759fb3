package policyfile

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
)

// Handler returns end behind the policies of f, mounted as the file says: those without `on` by Handler, the others by Limit
// on their patterns. It is for tools and tests. l must have been made with [File.Everywhere].
//
// With patterns, it is a ServeMux or a chi router, whichever `router` names. Requests that match no pattern reach end, too.
// Under ServeMux they have the pattern "/". Without patterns, it is what Handler or Limit of l returns.
//
// Handler is around the ServeMux, where it limits redirects to clean paths, too. If a policy without `on` may have a key of
// the route, such as `route` or one of [Registry.Keys], Handler is on each pattern instead.
func (f *File) Handler(l *ratelimit.Limiter, end http.Handler) http.Handler {
	all := func(next http.Handler) http.Handler { return next }
	if len(f.Everywhere()) > 0 {
		all = l.Handler
	}
	patterns := f.patterns()
	if len(patterns) == 0 {
		return all(end)
	}
	limited := func(pattern string) http.Handler {
		if policies := f.on(pattern); len(policies) > 0 {
			return l.Limit(policies...)(end)
		}
		return end
	}
	if f.chi {
		r := chi.NewRouter()
		if len(f.Everywhere()) > 0 {
			r.Use(l.Handler)
		}
		r.NotFound(end.ServeHTTP)
		r.MethodNotAllowed(end.ServeHTTP)
		for _, pattern := range patterns {
			handleChi(r, pattern, limited(pattern))
		}
		return r
	}
	mux := http.NewServeMux()
	if !slices.ContainsFunc(f.mounts, func(m Mount) bool { return m.byRoute && len(m.On) == 0 && len(m.Unknown) == 0 }) {
		for _, pattern := range patterns {
			mux.Handle(pattern, limited(pattern))
		}
		handleRest(mux, end)
		return all(mux)
	}
	for _, pattern := range patterns {
		mux.Handle(pattern, all(limited(pattern)))
	}
	handleRest(mux, all(end))
	return mux
}

// handleRest registers h for the requests that match no pattern of mux.
func handleRest(mux *http.ServeMux, h http.Handler) {
	defer func() { recover() }() // a pattern such as "/" or "/{path...}" matches all requests already
	mux.Handle("/", h)
}

// on returns the policies whose `on` has pattern.
func (f *File) on(pattern string) []ratelimit.Policy {
	return f.choose(func(m Mount) bool { return slices.Contains(m.On, pattern) })
}

// patterns returns all patterns of f, each once.
func (f *File) patterns() (patterns []string) {
	add := func(more []string) {
		for _, pattern := range more {
			if !slices.Contains(patterns, pattern) {
				patterns = append(patterns, pattern)
			}
		}
	}
	for _, m := range f.mounts {
		add(m.On)
	}
	add(f.routes)
	return patterns
}

// handleChi registers a pattern such as "GET /items/{id}", or "/items" for all methods. It panics on a malformed one.
func handleChi(r chi.Router, pattern string, h http.Handler) {
	if method, path, ok := strings.Cut(pattern, " "); ok {
		r.Method(method, strings.TrimLeft(path, " "), h)
	} else {
		r.Handle(pattern, h)
	}
}
