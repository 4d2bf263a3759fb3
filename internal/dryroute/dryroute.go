// Package dryroute finds the way of a request through the routers of a program, and runs none of the program's handlers.
// It makes a copy of the routers for the request, the skeleton, with the places of a limiter and nothing else inside. The
// routers' own code then chooses the route.
package dryroute

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Places finds places of a limiter among handlers and middleware.
type Places interface {
	// Handler returns what stands for h around the skeleton of the handler that h wraps, and that handler. If h is no
	// place, stand is nil.
	Handler(h http.Handler) (stand Middleware, next http.Handler)

	// Middleware returns what stands for a middleware, nil if it is no place. It must not call it then: the
	// constructor of a middleware may register metrics, and panic the second time.
	Middleware(mw Middleware) (stand Middleware)
}

// A Middleware wraps a handler.
type Middleware = func(http.Handler) http.Handler

// An End is where a request leaves what can be followed.
type End struct {
	Name string // of the handler

	// Opaque reports that other handlers may be inside. A function that a function has made is opaque, because most
	// middleware returns one. So is a handler that is no function, such as a router.
	Opaque bool

	// Routed reports that a router has matched the whole path.
	Routed bool

	// Routes reports that the handler may be a router: it is Opaque and no function, or leads into a framework.
	Routes bool
}

// A Builder builds the skeleton for one request, and learns how the request goes through it. All exported fields must be
// set. One goroutine uses it.
type Builder struct {
	Request *http.Request
	Places  Places

	// Reached is called where the request leaves the skeleton.
	Reached func(r *http.Request, end End)

	foreign    []string
	faults     []string
	depth      int
	rebuilding bool // a router of chi
	routes     int  // of chi that were rebuilt
}

// maxDepth bounds handlers that are inside each other, and maxRoutes the routes of routers. A router may contain itself.
const (
	maxDepth  = 100
	maxRoutes = 100_000
)

// Foreign returns the names of the middleware that the request has met and that was not run, without repetitions.
func (b *Builder) Foreign() []string { return b.foreign }

// Faults returns in sentences where the skeleton may differ from the program's routers.
func (b *Builder) Faults() []string { return b.faults }

// Of returns the skeleton of h. It runs no handler, and no middleware but those that Places knows.
func (b *Builder) Of(h http.Handler) http.Handler { return b.of(h, false) }

// of is Of. routed reports that routers which lead to h have matched the whole path.
func (b *Builder) of(h http.Handler, routed bool) http.Handler {
	b.depth++
	defer func() { b.depth-- }()
	if b.depth > maxDepth {
		b.fault("handlers are nested more than %d deep: the rest is not followed", maxDepth)
		return b.end(h, routed)
	}
	if stand, next := b.Places.Handler(h); stand != nil {
		return stand(b.of(next, routed))
	}
	switch router := h.(type) {
	case *http.ServeMux:
		return &serveMux{b, router, b.depth}
	default:
		if in := b.chi(h, routed); in != nil {
			return in
		}
	}
	return b.end(h, routed)
}

// through returns what stands for a middleware around next.
func (b *Builder) through(mw Middleware, next http.Handler) http.Handler {
	if stand := b.Places.Middleware(mw); stand != nil {
		return stand(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := nameOfFunc(mw); !slices.Contains(b.foreign, name) {
			b.foreign = append(b.foreign, name)
		}
		next.ServeHTTP(w, r)
	})
}

func (b *Builder) fault(format string, args ...any) {
	if fault := fmt.Sprintf(format, args...); !slices.Contains(b.faults, fault) {
		b.faults = append(b.faults, fault)
	}
}

// end returns what stands for h, which cannot be followed.
func (b *Builder) end(h http.Handler, routed bool) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		end := End{Name: Name(h), Opaque: opaque(h), Routed: routed}
		f, isFunc := h.(http.HandlerFunc)
		end.Routes = end.Opaque && (!isFunc || strings.HasPrefix(pathOfFunc(f), adapters))
		b.Reached(r, end)
	})
}

// notFound returns what stands for the answer of a router that has no route for the request.
func (b *Builder) notFound() http.Handler { return b.end(http.HandlerFunc(http.NotFound), true) }
