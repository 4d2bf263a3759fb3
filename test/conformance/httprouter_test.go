package conformance

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/handlers"
	"github.com/julienschmidt/httprouter"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
)

func httprouterGuide(limiter *ratelimit.Limiter, login ratelimit.Policy, h http.Handler) http.Handler {
	router := httprouter.New()
	handle := func(method, path string, h http.Handler) {
		router.Handler(method, path, withPattern(method+" "+path, h))
	}
	handle("POST", "/login", limiter.Limit(login)(h))
	handle("GET", "/items/:id", limiter.Handler(h))
	router.NotFound = withPattern("unmatched", limiter.Handler(http.NotFoundHandler()))
	return router
}

func julien(limit wrapper) *httprouter.Router {
	router := httprouter.New()
	for _, route := range [][2]string{{"GET", "/items/:id"}, {"GET", "/files/*path"}, {"PURGE", "/items/:id"}} {
		router.Handler(route[0], route[1], withPattern(route[0]+" "+route[1], limit(okHandler)))
	}
	return router
}

func httprouterTables() []routerTable {
	found := []routed{
		{"GET", "/items/5", "GET /items/:id"},
		{"PURGE", "/items/5", "PURGE /items/:id"},
		{"GET", "/files/made/up", "GET /files/*path"},
		{"GET", "/items/5/", notLimited}, // redirects
		{"GET", "/ITEMS/5", notLimited},
	}
	return []routerTable{
		{"httprouter", func(limit wrapper) http.Handler { return julien(limit) }, append(found,
			routed{"PUT", "/items/5", notLimited},
			routed{"HEAD", "/items/5", notLimited}, // httprouter answers 405
			routed{"OPTIONS", "/items/5", notLimited},
			routed{madeUp, "/items/5", notLimited},
			routed{"GET", "/none/5", notLimited},
		)},
		{"httprouter with handlers for what matches no route", func(limit wrapper) http.Handler {
			router := julien(limit)
			unmatched := withPattern("unmatched", limit(http.NotFoundHandler()))
			router.NotFound, router.MethodNotAllowed, router.GlobalOPTIONS = unmatched, unmatched, unmatched
			return router
		}, append(found,
			routed{"PUT", "/items/5", "unmatched"},
			routed{"HEAD", "/items/5", "unmatched"},
			routed{"OPTIONS", "/items/5", "unmatched"},
			routed{madeUp, "/items/5", "unmatched"},
			routed{"GET", "/none/5", "unmatched"},
		)},
		{"httprouter in chi", func(limit wrapper) http.Handler {
			m := chi.NewRouter()
			m.Mount("/", julien(limit))
			return m
		}, []routed{{"GET", "/items/5", "/* GET /items/:id"}}},
		{"httprouter without patterns", func(limit wrapper) http.Handler {
			router := httprouter.New()
			router.Handler("GET", "/items/:id", limit(okHandler))
			return router
		}, []routed{{"GET", "/items/5", noRoute}}},
	}
}

// httprouterApp is an app of the list on httprouter.
func httprouterApp(t testing.TB, app adaptertest.App) string {
	if app.Errors {
		t.Fatal("httprouter has no error handling")
	}
	router := httprouter.New()
	outside := app.Outside
	if len(outside) == 1 {
		if handle, ok := outside[0].(panicHandler); ok {
			router.PanicHandler, outside = handle, nil
		}
	}
	limit := direct
	if app.Limiter != nil && app.Handler {
		limit = app.Limiter.Handler
		unmatched := withPattern("unmatched", limit(http.NotFoundHandler()))
		router.NotFound, router.MethodNotAllowed = unmatched, unmatched
	}
	groups := make(map[string]wrapper)
	for _, route := range app.Routes {
		h, path := limitOf(app, route.Policies)(handlerOf(route)), ""
		var limits []wrapper
		for _, g := range route.Groups {
			path += g.Prefix
			if groups[path] == nil {
				groups[path] = limitOf(app, g.Policies)
			}
			limits = append(limits, groups[path])
		}
		path += route.Path
		h = behind(outside, limit(behind(app.Inside, behind(limits, h))))
		router.Handler(route.Method, path, withPattern(route.Method+" "+path, h))
	}
	return adaptertest.ServeHTTP(t, router)
}

type panicHandler = func(http.ResponseWriter, *http.Request, any)

func TestListOnHTTPRouter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{
		Serve:    httprouterApp,
		Path:     adaptertest.Colon,
		Recovery: recovery,
		Gzip:     wrapper(handlers.CompressHandler),
		Ways: []adaptertest.Way{{
			Name:    "a panic with PanicHandler",
			Fail:    http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") }),
			Status:  http.StatusInternalServerError,
			Outside: []any{panicHandler(func(w http.ResponseWriter, _ *http.Request, _ any) { w.WriteHeader(http.StatusInternalServerError) })},
		}},
		Lacks: without("httprouter has no error handling", nil),
	})
}
