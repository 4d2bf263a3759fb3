package conformance

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/handlers"
	"github.com/gorilla/mux"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
)

// patterns sets the pattern of the matched route, for Route and Event.Route. Mount it before the limiter.
func patterns(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route := mux.CurrentRoute(r); route != nil { // nil: around the router
			host, _ := route.GetHostTemplate()
			path, err := route.GetPathTemplate()
			if err != nil {
				path = "/" // the route serves all paths
			}
			r.Pattern = host + path
			if _, err := route.GetMethods(); err == nil { // otherwise a client could make up the method
				r.Pattern = r.Method + " " + r.Pattern
			}
		}
		next.ServeHTTP(w, r)
	})
}

func gorillaGuide(limiter *ratelimit.Limiter, login ratelimit.Policy, h http.Handler) http.Handler {
	r := mux.NewRouter()
	r.Use(patterns, limiter.Handler)
	r.Handle("/login", limiter.Limit(login)(h)).Methods("POST")
	r.NotFoundHandler = withPattern("unmatched", limiter.Handler(http.NotFoundHandler()))
	return r
}

// gorilla is a router of gorilla/mux with several kinds of routes.
func gorilla(middleware ...mux.MiddlewareFunc) *mux.Router {
	r := mux.NewRouter()
	r.Use(middleware...)
	r.Handle("/items/{id:[0-9]+}", okHandler).Methods("GET", "PUT")
	r.Handle("/users/{id}", okHandler)
	r.PathPrefix("/files/").Handler(okHandler)
	posts := r.PathPrefix("/posts").Methods("GET", "POST").Subrouter()
	posts.Handle("/{id}", okHandler)
	r.Handle("/", okHandler).Host("{tenant}.example")
	r.Host("all.example").Handler(okHandler)
	return r
}

func gorillaTables() []routerTable {
	found := []routed{
		{"GET", "/items/5", "GET /items/{id:[0-9]+}"},
		{"PUT", "/items/6", "PUT /items/{id:[0-9]+}"},
		{"GET", "/users/5", "/users/{id}"},
		{madeUp, "/users/5", "/users/{id}"},
		{"GET", "/files/made/up", "/files/"},
		{"GET", "/posts/5", "GET /posts/{id}"},
		{"POST", "/posts/5", "POST /posts/{id}"},
		{"GET", "http://a.example/", "{tenant}.example/"},
		{"GET", "http://all.example/made/up", "all.example/"},
		{"GET", "//items/5", notLimited}, // a redirect
	}
	notFound := []routed{{"DELETE", "/items/5", notLimited}, {madeUp, "/posts/5", notLimited}, {"GET", "/none", notLimited}, {"GET", "/items/five", notLimited}}
	return []routerTable{
		{"gorilla/mux", func(limit wrapper) http.Handler { return gorilla(patterns, limit) }, append(found, notFound...)},
		{"gorilla/mux with handlers for what matches no route", func(limit wrapper) http.Handler {
			r := gorilla(patterns, limit)
			r.NotFoundHandler = withPattern("unmatched", limit(http.NotFoundHandler()))
			r.MethodNotAllowedHandler = withPattern("unmatched", limit(http.NotFoundHandler()))
			return r
		}, append(found, routed{"DELETE", "/items/5", "unmatched"}, routed{madeUp, "/posts/5", "unmatched"}, routed{"GET", "/none", "unmatched"}, routed{"GET", "/items/five", "unmatched"})},
		{"gorilla/mux in a ServeMux", func(limit wrapper) http.Handler {
			m := http.NewServeMux()
			m.Handle("/", gorilla(patterns, limit))
			return m
		}, found[:5]},
		{"gorilla/mux in chi", func(limit wrapper) http.Handler {
			m := chi.NewRouter()
			m.Mount("/", gorilla(patterns, limit))
			return m
		}, []routed{{"GET", "/items/5", "/* GET /items/{id:[0-9]+}"}, {"GET", "/users/5", "/* /users/{id}"}}},
		{"gorilla/mux with patterns around it", func(limit wrapper) http.Handler { return patterns(limit(gorilla())) }, []routed{
			{"GET", "/items/5", noRoute},
		}},
		{"gorilla/mux with the limiter before patterns", func(limit wrapper) http.Handler { return gorilla(limit, patterns) }, []routed{
			{"GET", "/items/5", noRoute},
		}},
		{"gorilla/mux without patterns", func(limit wrapper) http.Handler { return gorilla(limit) }, []routed{
			{"GET", "/items/5", noRoute},
		}},
		{"gorilla/mux without patterns in a ServeMux", func(limit wrapper) http.Handler {
			m := http.NewServeMux()
			m.Handle("/", gorilla(limit))
			return m
		}, []routed{{"GET", "/items/5", "/"}, {"GET", "/users/5", "/"}}},
	}
}

// gorillaApp is an app of the list on gorilla/mux.
func gorillaApp(t testing.TB, app adaptertest.App) string {
	if app.Errors {
		t.Fatal("gorilla/mux has no error handling")
	}
	root := mux.NewRouter()
	root.Use(patterns)
	for _, m := range app.Outside {
		root.Use(m.(wrapper))
	}
	if app.Limiter != nil && app.Handler {
		root.Use(app.Limiter.Handler)
		root.NotFoundHandler = withPattern("unmatched", app.Limiter.Handler(http.NotFoundHandler()))
		root.MethodNotAllowedHandler = withPattern("unmatched", app.Limiter.Handler(http.NotFoundHandler()))
	}
	for _, m := range app.Inside {
		root.Use(m.(wrapper))
	}
	groups := make(map[string]*mux.Router)
	for _, route := range app.Routes {
		r, prefix := root, ""
		for _, g := range route.Groups {
			if g.Mount {
				t.Fatal("gorilla/mux mounts no routers")
			}
			prefix += g.Prefix
			if groups[prefix] == nil {
				groups[prefix] = r.PathPrefix(g.Prefix).Subrouter()
				groups[prefix].Use(limitOf(app, g.Policies))
			}
			r = groups[prefix]
		}
		r.Handle(route.Path, limitOf(app, route.Policies)(handlerOf(route))).Methods(route.Method)
	}
	return adaptertest.ServeHTTP(t, root)
}

func TestListOnGorillaMux(t *testing.T) {
	const noMount = "gorilla/mux mounts no routers, but has subrouters"
	adaptertest.Run(t, adaptertest.Framework{
		Serve:    gorillaApp,
		Recovery: recovery,
		Gzip:     wrapper(handlers.CompressHandler),
		Lacks: without("gorilla/mux has no error handling", map[string]string{
			"pattern by Handler: a route of a mount":          noMount,
			"pattern by Limit of a group: a route of a mount": noMount,
			"pattern by Limit of a route: a route of a mount": noMount,
		}),
	})
}
