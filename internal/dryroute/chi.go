package dryroute

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// chi returns the skeleton of h if it is a part of chi, otherwise nil.
func (b *Builder) chi(h http.Handler, routed bool) http.Handler {
	switch h := h.(type) {
	case *chi.ChainHandler:
		inner := b.of(h.Endpoint, routed)
		for _, mw := range slices.Backward(h.Middlewares) {
			inner = b.through(mw, inner)
		}
		return inner
	case chi.Routes:
		return b.router(h)
	}
	return nil
}

// router returns the skeleton of a router. It rebuilds all routes, because chi does not list all that can happen. A prefix
// has routes that are not listed, and a method that is not allowed is answered inside of a mounted router.
func (b *Builder) router(routes chi.Routes) (in http.Handler) {
	h := routes.(http.Handler)
	defer func() {
		if recover() != nil { // such as one of two mounts in one place
			b.fault("%s could not be rebuilt: its routes are not followed", Name(h))
			in = b.end(h, false)
		}
	}()
	if _, isMux := h.(*chi.Mux); !isMux {
		b.fault("%s is followed as a chi router: what else its ServeHTTP does is not known", Name(h))
	}
	outermost := !b.rebuilding
	b.rebuilding = true
	defer func() { b.rebuilding = !outermost }()
	path := cmp.Or(b.Request.URL.RawPath, b.Request.URL.Path, "/")
	find := func(routes chi.Routes) string { return routes.Find(chi.NewRouteContext(), b.Request.Method, path) }
	var rebuilt *chi.Mux
	for _, slash := range []string{"", "/"} { // chi does not say how a router is mounted
		rebuilt = chi.NewRouter()
		rebuilt.Use(as(routes))
		b.rebuild(rebuilt, routes, slash)
		if !outermost || find(rebuilt) == find(routes) {
			return rebuilt
		}
	}
	b.fault("%s may route this request in another way than it is explained", Name(h))
	return rebuilt
}

// as returns middleware that shows requests the routes of another router. Functions that find keys remember them.
func as(routes chi.Routes) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rctx := chi.RouteContext(r.Context()); len(rctx.RoutePatterns) == 0 {
				rctx.Routes = routes
			}
			next.ServeHTTP(w, r)
		})
	}
}

// rebuild adds the skeletons of all that is in routes to out. Routers are mounted with or without a slash behind.
func (b *Builder) rebuild(out *chi.Mux, routes chi.Routes, slash string) {
	for _, mw := range routes.Middlewares() {
		out.Use(func(next http.Handler) http.Handler { return b.through(mw, next) })
	}
	unmatched, refused := b.notFound(), b.notFound()
	if mux, ok := routes.(*chi.Mux); ok {
		unmatched = b.end(mux.NotFoundHandler(), true)
		if custom := mux.MethodNotAllowedHandler(); !strings.Contains(nameOfFunc(custom), "methodNotAllowedHandler") {
			refused = b.end(custom, true)
		}
	}
	out.NotFound(unmatched.ServeHTTP)
	out.MethodNotAllowed(refused.ServeHTTP)
	list := routes.Routes()
	mounts := slices.Clone(list)
	mounts = slices.DeleteFunc(mounts, func(route chi.Route) bool { return !mounted(route) })
	for _, route := range mounts { // first: their prefixes may be routes, too
		in := b.with(out, route.Handlers["*"])
		prefix := strings.TrimSuffix(route.Pattern, "/*") + slash
		if route.SubRoutes == nil {
			in.Mount(cmp.Or(prefix, "/"), b.end(endpoint(route.Handlers["*"]), false))
			continue
		}
		sub := chi.NewRouter()
		b.rebuild(sub, route.SubRoutes, slash)
		in.Mount(cmp.Or(prefix, "/"), sub)
	}
	for _, route := range list {
		if b.routes++; b.routes > maxRoutes {
			panic("too many routes")
		}
		if mounted(route) {
			continue
		}
		routed := !strings.HasSuffix(route.Pattern, "*")
		all := route.Handlers["*"]
		if all != nil {
			out.Handle(route.Pattern, b.of(all, routed))
		}
		for method, h := range route.Handlers {
			if method != "*" && !same(h, all) {
				out.Method(method, route.Pattern, b.of(h, routed))
			}
		}
	}
}

// mounted reports whether a route is that of Mount.
func mounted(route chi.Route) bool {
	return route.SubRoutes != nil || strings.HasSuffix(route.Pattern, "/*") &&
		strings.HasPrefix(Name(endpoint(route.Handlers["*"])), "v5.(*Mux).Mount.")
}

func endpoint(h http.Handler) http.Handler {
	if chain, ok := h.(*chi.ChainHandler); ok {
		return chain.Endpoint
	}
	return h
}

// with returns out behind what stands for the middleware of h.
func (b *Builder) with(out *chi.Mux, h http.Handler) chi.Router {
	chain, ok := h.(*chi.ChainHandler)
	if !ok {
		return out
	}
	var stands []Middleware
	for _, mw := range chain.Middlewares {
		stands = append(stands, func(next http.Handler) http.Handler { return b.through(mw, next) })
	}
	return out.With(stands...)
}

// same reports whether a and b are the same handler.
func same(a, b http.Handler) bool {
	if b == nil || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	if v := reflect.ValueOf(a); v.Kind() == reflect.Func {
		return v.Pointer() == reflect.ValueOf(b).Pointer()
	}
	return reflect.TypeOf(a).Comparable() && a == b
}
