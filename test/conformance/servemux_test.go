package conformance

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

func serveMuxGuide(limiter *ratelimit.Limiter, login ratelimit.Policy, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(login)(h))
	mux.Handle("GET /items/{id}", limiter.Handler(h))
	mux.Handle("/", limiter.Handler(http.NotFoundHandler())) // all other paths and methods share the key "route:/"
	return mux
}

func itemsMux(limit wrapper) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limit(okHandler))
	mux.Handle("/users/{id}", limit(okHandler))
	mux.Handle("GET example.com/", limit(okHandler))
	api := http.NewServeMux()
	api.Handle("GET /posts/{id}", limit(okHandler))
	mux.Handle("/api/", http.StripPrefix("/api", api))
	return mux
}

func serveMuxTables() []routerTable {
	return []routerTable{
		{"ServeMux", func(limit wrapper) http.Handler { return itemsMux(limit) }, []routed{
			{"GET", "/items/5", "GET /items/{id}"},
			{"HEAD", "/items/5", "GET /items/{id}"},
			{"GET", "/users/5", "/users/{id}"},
			{madeUp, "/users/5", "/users/{id}"},
			{"GET", "http://example.com/made/up", "GET example.com/"},
			{"GET", "/api/posts/5", "GET /posts/{id}"}, // without the prefix that was stripped
			{"PUT", "/items/5", notLimited},
			{madeUp, "/items/5", notLimited},
			{"GET", "/none", notLimited},
			{"GET", "//items/5", notLimited}, // a redirect
		}},
		{"ServeMux with a route for all other paths", func(limit wrapper) http.Handler {
			mux := itemsMux(limit)
			mux.Handle("/", limit(http.NotFoundHandler()))
			return mux
		}, []routed{
			{"GET", "/items/5", "GET /items/{id}"},
			{"PUT", "/items/5", "/"},
			{madeUp, "/items/5", "/"},
			{"GET", "/none", "/"},
		}},
		{"around a ServeMux", func(limit wrapper) http.Handler { return limit(itemsMux(direct)) }, []routed{
			{"GET", "/items/5", noRoute},
		}},
	}
}
