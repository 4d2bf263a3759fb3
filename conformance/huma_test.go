package conformance

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/chi/v5"
)

// limited returns middleware of huma. limit is limiter.Handler or limiter.Limit(policies...).
func limited(limit func(http.Handler) http.Handler) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next(humago.NewContext(ctx.Operation(), r, w))
		}))
		r, w := humago.Unwrap(ctx)
		h.ServeHTTP(w, r.WithContext(ctx.Context()))
	}
}

type nothing struct{}

type text struct{ Body string }

func okOperation(context.Context, *nothing) (*text, error) { return &text{"ok"}, nil }

type item struct {
	ID string `path:"id"`
}

func humaItems(limit wrapper) http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Items", "1"))
	api.UseMiddleware(limited(limit))
	registerItems(api)
	return mux
}

func registerItems(api huma.API) {
	get := func(context.Context, *item) (*text, error) { return &text{"ok"}, nil }
	huma.Get(api, "/items/{id}", get)
	huma.Get(huma.NewGroup(api, "/v1"), "/items/{id}", get)
}

func humaTables() []routerTable {
	return []routerTable{
		{"huma", humaItems, []routed{
			{"GET", "/items/5", "GET /items/{id}"},
			{"HEAD", "/items/5", "GET /items/{id}"},
			{"GET", "/v1/items/5", "GET /v1/items/{id}"},
			{"PUT", "/items/5", notLimited},
			{madeUp, "/items/5", notLimited},
			{"GET", "/none", notLimited},
			{"GET", "/openapi.json", notLimited},
		}},
		{"huma on chi", func(limit wrapper) http.Handler {
			r := chi.NewRouter()
			r.Use(limit)
			registerItems(humachi.New(r, huma.DefaultConfig("Items", "1")))
			return r
		}, []routed{
			{"GET", "/items/5", "GET /items/{id}"},
			{"GET", "/v1/items/5", "GET /v1/items/{id}"},
			{"PUT", "/items/5", "unmatched"},
			{madeUp, "/items/5", "unmatched"},
			{"GET", "/none", "unmatched"},
			{"GET", "/openapi.json", "GET /openapi.json"},
		}},
		{"huma on a part of chi", func(limit wrapper) http.Handler {
			r := chi.NewRouter()
			r.Route("/api", func(r chi.Router) {
				r.Use(limit)
				registerItems(humachi.New(r, huma.DefaultConfig("Items", "1")))
			})
			return r
		}, []routed{{"GET", "/api/items/5", "GET /api/items/{id}"}}},
	}
}
