package ratelimit

import (
	"cmp"
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
)

// Route is the pattern that the request matched, as "route:GET /items/{id}": never its path, of which a
// client can make up any number. It is for limits of a route as a whole; Join it with another key for one
// per client.
//
// Under chi it works in r.Use, r.With and r.Group alike, and in sub-routers; all paths that match nothing
// are one key, "route:unmatched". A route that chi serves for any method is one key for each method that
// chi knows. Middleware that changes what chi matches (StripSlashes, GetHead) must come before. Handlers
// that chi mounts without knowing their routes are one route from above, and their own within.
//
// Under http.ServeMux the limiter must be mounted on the route's handler, where the pattern is known, not
// around the mux. A pattern without a method keeps its own form, "route:/items/{id}", because a client
// could make up methods, too. What http.StripPrefix took away is not part of the pattern.
//
// No key: the request has not passed a router yet.
func Route() KeyFunc {
	var mounted subRouters
	return func(r *http.Request) (string, error) {
		pattern := mounted.pattern(r)
		if pattern == "" {
			return "", keyerr.New(ErrNoKey, "the request has not matched a route yet: mount the limiter on the route's handler, not around the ServeMux")
		}
		return "route:" + pattern, nil
	}
}

// subRouters are the routers that were found below others, by mount: chi lists routes by a walk through
// all of them.
type subRouters struct{ sync.Map }

type (
	mount struct {
		root    chi.Routes
		pattern string
	}
	found struct{ router chi.Routes } // nil: not a router
)

// pattern returns the pattern that r matched, "" if it has not passed a router yet.
func (s *subRouters) pattern(r *http.Request) string {
	if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil {
		return s.route(rctx, r)
	}
	return r.Pattern
}

// route returns the method and the whole pattern of a request that chi is routing or has routed.
func (s *subRouters) route(rctx *chi.Context, r *http.Request) string {
	method := cmp.Or(rctx.RouteMethod, r.Method)
	if len(rctx.RoutePatterns) == 0 { // we are in r.Use of the root router
		path := cmp.Or(rctx.RoutePath, r.URL.RawPath, r.URL.Path, "/")
		return whole(method, "", find(rctx.Routes, method, path))
	}
	matched := rctx.RoutePattern()
	prefix, partly := strings.CutSuffix(matched, "/*")
	if !partly {
		return method + " " + matched
	}
	if r.Pattern != "" && r.Pattern != matched {
		// chi set r.Pattern to its own, so this is that of a ServeMux which chi mounted.
		return matched + " " + r.Pattern
	}
	sub := s.at(rctx)
	if sub == nil {
		return method + " " + matched
	}
	// chi keeps the rest of the path in the wildcard until it enters the sub-router, and then in RoutePath.
	path := cmp.Or(rctx.RoutePath, "/")
	if rest := rctx.URLParam("*"); rest != "" {
		path = "/" + rest
	}
	return whole(method, prefix, find(sub, method, path))
}

// routing is what chi needs to find a route. It is kept for the next, as chi does.
var routing = sync.Pool{New: func() any { return chi.NewRouteContext() }}

func find(routes chi.Routes, method, path string) string {
	rctx := routing.Get().(*chi.Context)
	defer routing.Put(rctx)
	rctx.Reset()
	return routes.Find(rctx, method, path)
}

func whole(method, prefix, rest string) string {
	if rest == "" {
		return "unmatched"
	}
	return method + " " + cmp.Or(strings.TrimSuffix(prefix+rest, "/"), "/") // as RoutePattern has it
}

// at returns the router that a request has reached through the mounts it matched, nil if what is there is
// not a router.
func (s *subRouters) at(rctx *chi.Context) chi.Routes {
	m := mount{rctx.Routes, strings.Join(rctx.RoutePatterns, "\n")}
	if known, ok := s.Load(m); ok {
		return known.(found).router
	}
	sub := subRouter(rctx.Routes, rctx.RoutePatterns)
	s.Store(m, found{sub})
	return sub
}

func subRouter(routes chi.Routes, patterns []string) chi.Routes {
	for _, pattern := range patterns {
		var sub chi.Routes
		for _, route := range routes.Routes() {
			if route.Pattern == pattern {
				sub = route.SubRoutes
			}
		}
		if sub == nil {
			return nil
		}
		routes = sub
	}
	return routes
}
