package ratelimit

import (
	"cmp"
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
)

// Route uses the pattern that the request matched, never the path, which clients can make up. The key is
// "route:GET /items/{id}". It limits a route for all clients together. [Join] it with another key for a limit of each
// client on each route.
//
// Under chi it works in r.Use, r.With, r.Group and sub-routers. All paths that match no route share the key
// "route:unmatched". Mount middleware that changes the path or the method, such as StripSlashes, before it.
//
// Under [http.ServeMux], mount the limiter on the route's handler. Around the mux no request has a key, and each is
// answered 403 ([ErrNoKey]). A prefix that [http.StripPrefix] removes is not part of the key.
//
// Under any other router, set the Pattern of the [http.Request] before the limiter, as the adapters under contrib do.
// See https://github.com/go-tokenbucket/ratelimit/blob/main/docs/routers.md.
func Route() KeyFunc {
	var mounted subRouters
	return func(r *http.Request) (string, error) {
		routers := &mounted
		run := dryrun.OfRequest(r)
		if run != nil {
			run.Name("Route")
			routers = new(subRouters) // those of an explanation are its own, and would be kept forever
		}
		pattern := routers.pattern(r)
		if run != nil {
			noteRoute(run, r, pattern)
		}
		if pattern == "" {
			return "", failure.New(ErrNoKey, "the request has not matched a route yet: mount the limiter on the route's handler, not around the router; under a router other than ServeMux and chi, set http.Request.Pattern first, or use another key")
		}
		return "route:" + pattern, nil
	}
}

func noteRoute(run *dryrun.Run, r *http.Request, pattern string) {
	switch rctx := chi.RouteContext(r.Context()); {
	case pattern == "":
		run.Note("http.Request.Pattern is empty, and the request has no route context of chi")
	case rctx == nil || rctx.Routes == nil:
		run.Note("the pattern is http.Request.Pattern, which ServeMux or a middleware has set")
	case len(rctx.RoutePatterns) == 0:
		run.Note("the pattern is what chi will match: the root router has not routed the request yet")
	default:
		run.Note("the pattern is chi's, which has matched %s so far", rctx.RoutePattern())
	}
}

// subRouters are the sub-routers that were found, by mount. They are kept because chi lists routes by a walk through
// all of them.
type subRouters struct{ sync.Map }

type (
	routerMount struct {
		root    chi.Routes
		pattern string
	}
	foundRouter struct{ router chi.Routes } // nil: the mounted handler is no router
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
	// chi keeps the rest of the path in the wildcard until the request enters the sub-router, and then
	// in RoutePath.
	path := cmp.Or(rctx.RoutePath, "/")
	if rest := rctx.URLParam("*"); rest != "" {
		path = "/" + rest
	}
	return whole(method, prefix, find(sub, method, path))
}

// routing holds route contexts for find, which are reused as chi reuses its own.
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

// at returns the router that a request has reached through the mounts it matched, nil if the mounted handler is not a
// router.
func (s *subRouters) at(rctx *chi.Context) chi.Routes {
	m := routerMount{rctx.Routes, strings.Join(rctx.RoutePatterns, "\n")}
	if known, ok := s.Load(m); ok {
		return known.(foundRouter).router
	}
	sub := subRouter(rctx.Routes, rctx.RoutePatterns)
	s.Store(m, foundRouter{sub})
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
