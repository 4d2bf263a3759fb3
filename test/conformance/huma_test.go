package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/handlers"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
)

// adapt returns middleware of net/http as middleware of huma.
func adapt(middleware func(http.Handler) http.Handler) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		h := middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next(humago.NewContext(ctx.Operation(), r, w))
		}))
		r, w := humago.Unwrap(ctx)
		if _, wrapped := ctx.(interface{ Unwrap() huma.Context }); wrapped { // by huma.WithValue
			r = r.WithContext(ctx.Context())
		}
		h.ServeHTTP(w, r)
	}
}

func humaGuide(limiter *ratelimit.Limiter, login ratelimit.Policy, _ http.Handler) http.Handler {
	mux, logIn := http.NewServeMux(), okOperation
	api := humago.New(mux, huma.DefaultConfig("Items", "1"))
	api.UseMiddleware(adapt(limiter.Handler))
	huma.Register(api, huma.Operation{
		Method:      http.MethodPost,
		Path:        "/login",
		Middlewares: huma.Middlewares{adapt(limiter.Limit(login))},
	}, logIn)
	return mux
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
	api.UseMiddleware(adapt(limit))
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

// humaApp is an app of the list on huma. Its middleware is that of huma.
func humaApp(t testing.TB, app adaptertest.App) string {
	if app.Errors {
		t.Fatal("denyOf is not for Config.Errors")
	}
	mux := http.NewServeMux()
	use := func(api huma.API) {
		for _, m := range app.Outside {
			api.UseMiddleware(m.(humaMiddleware))
		}
		if app.Limiter != nil && app.Handler {
			api.UseMiddleware(adapt(app.Limiter.Handler))
		}
		for _, m := range app.Inside {
			api.UseMiddleware(m.(humaMiddleware))
		}
	}
	if app.Limiter != nil && app.Handler {
		mux.Handle("/", withPattern("unmatched", app.Limiter.Handler(http.NotFoundHandler()))) // what matches no operation
	}
	root := humago.New(mux, huma.DefaultConfig("The list", "1"))
	use(root)
	groups := make(map[string]huma.API)
	for _, route := range app.Routes {
		api, prefix := root, ""
		for _, g := range route.Groups {
			prefix += g.Prefix
			if groups[prefix] == nil {
				if g.Mount {
					groups[prefix] = humago.NewWithPrefix(mux, g.Prefix, huma.DefaultConfig("Mounted", "1"))
					use(groups[prefix])
				} else {
					groups[prefix] = huma.NewGroup(api, g.Prefix)
				}
				groups[prefix].UseMiddleware(adapt(limitOf(app, g.Policies)))
			}
			api = groups[prefix]
		}
		if route.Path == "/" {
			route.Path = "/{$}"
		}
		operation := huma.Operation{Method: route.Method, Path: route.Path, Middlewares: huma.Middlewares{adapt(limitOf(app, route.Policies))}}
		if register, ok := route.Native.(func(huma.API, huma.Operation)); ok {
			register(api, operation)
			continue
		}
		huma.Register(api, operation, func(context.Context, *nothing) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(ctx huma.Context) {
				r, w := humago.Unwrap(ctx)
				if err := route.Handler(adaptertest.NetHTTP{W: w, R: r}); err != nil {
					panic(err)
				}
			}}, nil
		})
	}
	return adaptertest.ServeHTTP(t, mux)
}

type humaMiddleware = func(huma.Context, func(huma.Context))

// answers is an operation that answers with an output or an error.
func answers[O any](output *O, err error) func(huma.API, huma.Operation) {
	return func(api huma.API, operation huma.Operation) {
		huma.Register(api, operation, func(context.Context, *nothing) (*O, error) { return output, err })
	}
}

type withStatus struct {
	Status int
	Body   string
}

func TestListOnHuma(t *testing.T) {
	wrong := huma.Error401Unauthorized("wrong password")
	streams := func(status int) func(huma.API, huma.Operation) {
		return answers(&huma.StreamResponse{Body: func(ctx huma.Context) {
			ctx.SetStatus(status)
			io.WriteString(ctx.BodyWriter(), "a stream")
		}}, nil)
	}
	adaptertest.Run(t, adaptertest.Framework{
		Serve:    humaApp,
		Recovery: adapt(recovery),
		Gzip:     adapt(handlers.CompressHandler),
		Ways: []adaptertest.Way{
			{Name: "an error of huma", Status: 401, Fail: answers[nothing](nil, wrong)},
			{Name: "an error of huma in another", Status: 401, Fail: answers[nothing](nil, fmt.Errorf("login: %w", wrong))},
			{Name: "an error with headers", Status: 401, Fail: answers[nothing](nil, huma.ErrorWithHeaders(wrong, http.Header{"Www-Authenticate": {"Basic"}}))},
			{Name: "an error with a status", Status: 418, Fail: answers[nothing](nil, teapot{})},
			{Name: "any error", Status: 500, Fail: answers[nothing](nil, errors.New("no database"))},
			{Name: "a status of the output", Status: 401, Fail: answers(&withStatus{401, "no"}, nil), Succeed: answers(&withStatus{201, "ok"}, nil)},
			{Name: "an output", Succeed: answers(&text{"ok"}, nil)},
			{Name: "no output", Succeed: answers[nothing](nil, nil)},
			{Name: "a stream with a status", Status: 401, Fail: streams(401), Succeed: streams(200)},
			{Name: "an input that is not valid", Status: 422, Fail: func(api huma.API, operation huma.Operation) {
				huma.Register(api, operation, func(context.Context, *invalid) (*nothing, error) { return nil, nil })
			}},
			{Name: "middleware that answers", Status: 401, Fail: func(api huma.API, operation huma.Operation) {
				operation.Middlewares = append(operation.Middlewares, func(ctx huma.Context, _ func(huma.Context)) {
					huma.WriteErr(api, ctx, http.StatusUnauthorized, "wrong password")
				})
				answers[nothing](nil, nil)(api, operation)
			}},
		},
		Patterns: map[string]string{"HEAD of GET": "GET /items/{id}"},
		Lacks:    without("an API of huma answers errors by Config.Deny: see denyOf", nil),
	})
}

// teapot is an error that tells huma its status.
type teapot struct{}

func (teapot) Error() string  { return "a teapot" }
func (teapot) GetStatus() int { return http.StatusTeapot }

// invalid is an input that is never valid.
type invalid struct{}

func (*invalid) Resolve(huma.Context) []error { return []error{errors.New("not valid")} }

// What middleware of huma outside has put into the context is there for key functions and handlers.
func TestTheLimiterHasTheContextOfHuma(t *testing.T) {
	t.Parallel()
	type member struct{}
	var seen events
	limiter := newLimiter(t, ratelimit.Config{Observe: seen.observe})
	perMember := ratelimit.Policy{Name: "member", Limit: ratelimit.PerHour(5), Key: ratelimit.ContextKey("member", func(ctx context.Context) (string, bool) {
		id, ok := ctx.Value(member{}).(string)
		return id, ok
	})}
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Members", "1"))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(huma.WithValue(ctx, member{}, "5")) })
	api.UseMiddleware(adapt(limiter.Limit(perMember)))
	huma.Get(api, "/", func(ctx context.Context, _ *nothing) (*text, error) { return &text{ctx.Value(member{}).(string)}, nil })
	if a := send(t, serve(t, mux)+"/"); a.StatusCode != http.StatusOK || !strings.Contains(a.body, "5") {
		t.Errorf("status %d, body %q", a.StatusCode, a.body)
	}
	if got := seen.take(); len(got) != 1 || !strings.HasSuffix(got[0], ":5, Event.Route GET /") {
		t.Errorf("%q", got)
	}
}

// denyOf answers denied requests as api does, in its form of errors.
func denyOf(api huma.API) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		huma.WriteErr(api, humago.NewContext(&huma.Operation{}, r, w), http.StatusTooManyRequests, "too many requests")
	})
}

func TestDenialsInTheFormOfHuma(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Login", "1"))
	limiter := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour))},
		Deny:     denyOf(api),
	})
	api.UseMiddleware(adapt(limiter.Handler))
	huma.Get(api, "/", okOperation)
	huma.Get(api, "/none", func(context.Context, *nothing) (*text, error) { return nil, huma.Error404NotFound("none") })
	url := serve(t, mux)
	other := send(t, url+"/none")
	a := send(t, url+"/")
	wantDenial(t, a)
	wantContentLength(t, a)
	if got, want := a.Header.Get("Content-Type"), other.Header.Get("Content-Type"); got != want {
		t.Errorf("Content-Type %q, and %q of other errors of huma", got, want)
	}
	var problem huma.ErrorModel
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil || problem.Status != http.StatusTooManyRequests || problem.Detail != "too many requests" {
		t.Errorf("body %q, error %v", a.body, err)
	}
}
