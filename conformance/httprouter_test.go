package conformance

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/julienschmidt/httprouter"

	"github.com/go-tokenbucket/ratelimit"
)

func httprouterRoutes(limiter *ratelimit.Limiter, login ratelimit.Policy, h http.Handler) *httprouter.Router {
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
