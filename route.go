package ratelimit

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// Route is the pattern that the request matched, as "route:GET /items/{id}": never its path, of which a
// client can make up any number. It is for limits of a route as a whole; Join it with another key for one
// per client.
//
// Under chi it works in r.Use, r.With and r.Group alike, and in sub-routers; all paths that match nothing
// are one key, "route:unmatched". Under http.ServeMux the limiter must be mounted on the route's handler,
// where the pattern is known, not around the mux. A ServeMux pattern without a method keeps its own form,
// "route:/items/{id}", because a client could make up methods, too.
//
// No key: the request has not passed a router yet.
func Route() KeyFunc {
	return func(r *http.Request) (string, error) {
		if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil {
			return "route:" + chiRoute(rctx, r), nil
		}
		if r.Pattern == "" {
			return "", fmt.Errorf("%w: the request has not matched a route yet: mount the limiter on the route's handler, not around the ServeMux", ErrNoKey)
		}
		return "route:" + r.Pattern, nil
	}
}

// chiRoute returns the method and the whole pattern of a request that chi is routing or has routed.
func chiRoute(rctx *chi.Context, r *http.Request) string {
	method := cmp.Or(rctx.RouteMethod, r.Method)
	matched := rctx.RoutePattern()
	partly := len(rctx.RoutePatterns) > 0 // else we are in r.Use of the root router
	if partly && !strings.HasSuffix(matched, "*") {
		return method + " " + matched
	}
	if partly && r.Pattern != "" && r.Pattern != matched {
		// chi set r.Pattern to its own, so this is that of a ServeMux which chi mounted.
		return matched + " " + r.Pattern
	}

	path := cmp.Or(r.URL.RawPath, r.URL.Path, "/")
	if !partly {
		path = cmp.Or(rctx.RoutePath, path) // as a middleware before us may have changed it
	}
	whole := rctx.Routes.Find(chi.NewRouteContext(), method, path)
	if partly && !strings.HasPrefix(whole, strings.TrimSuffix(matched, "*")) {
		// We are in r.Use of a sub-router, and the path is not the one that the routers went by.
		sub := subRouter(rctx.Routes, rctx.RoutePatterns)
		if sub == nil {
			return method + " " + matched // a handler whose routes chi does not know
		}
		if whole = sub.Find(chi.NewRouteContext(), method, rctx.RoutePath); whole != "" {
			whole = strings.TrimSuffix(matched, "/*") + whole
		}
	}
	if whole == "" {
		return "unmatched"
	}
	return method + " " + cmp.Or(strings.TrimSuffix(whole, "/"), "/") // as RoutePattern has it
}

// subRouter returns the router that a request has reached through the mounts of patterns, nil if they do
// not lead to one.
func subRouter(routes chi.Routes, patterns []string) chi.Routes {
	for _, pattern := range patterns {
		known := routes.Routes()
		i := slices.IndexFunc(known, func(r chi.Route) bool { return r.Pattern == pattern })
		if i < 0 || known[i].SubRoutes == nil {
			return nil
		}
		routes = known[i].SubRoutes
	}
	return routes
}
