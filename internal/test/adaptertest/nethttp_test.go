package adaptertest

import (
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type middleware = func(http.Handler) http.Handler

// A zipped is a response that is compressed.
type zipped struct {
	http.ResponseWriter
	zip *gzip.Writer
}

func (z zipped) Write(p []byte) (int, error) { return z.zip.Write(p) }

func (z zipped) FlushError() error {
	z.zip.Flush()
	return http.NewResponseController(z.ResponseWriter).Flush()
}

var (
	recovery middleware = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != nil {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}()
			next.ServeHTTP(w, r)
		})
	}
	compress middleware = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				w.Header().Set("Content-Encoding", "gzip")
				zip := gzip.NewWriter(w)
				defer zip.Close()
				w = zipped{w, zip}
			}
			next.ServeHTTP(w, r)
		})
	}
)

// handlerOf returns the handler of a route, behind the limits of its groups and of its own.
func handlerOf(app App, route Route) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := route.Handler(NetHTTP{w, r}); err != nil {
			panic(err)
		}
	})
	if route.Native != nil {
		h = route.Native.(http.Handler)
	}
	return limited(app, route.Policies, h)
}

func limited(app App, policies []ratelimit.Policy, h http.Handler) http.Handler {
	if app.Limiter == nil || len(policies) == 0 {
		return h
	}
	return app.Limiter.Limit(policies...)(h)
}

func around(h http.Handler, layers []any) http.Handler {
	for i := range layers {
		h = layers[len(layers)-1-i].(middleware)(h)
	}
	return h
}

// serveMux mounts everything on the handlers of routes, because the pattern is not known around a ServeMux.
func serveMux(t testing.TB, app App) string {
	if app.Errors {
		t.Fatal("net/http has no error handling")
	}
	mux := http.NewServeMux()
	shared := make(map[string]middleware)
	for _, route := range app.Routes {
		h, path := handlerOf(app, route), route.Path
		for i := range route.Groups {
			g := route.Groups[len(route.Groups)-1-i]
			if g.Mount {
				t.Fatal("a ServeMux in a ServeMux does not know the pattern of the outer one")
			}
			path = g.Prefix + path
			if app.Limiter != nil && len(g.Policies) > 0 {
				if shared[g.Prefix] == nil {
					shared[g.Prefix] = app.Limiter.Limit(g.Policies...)
				}
				h = shared[g.Prefix](h)
			}
		}
		h = around(h, app.Inside)
		if app.Limiter != nil && app.Handler {
			h = app.Limiter.Handler(h)
		}
		mux.Handle(route.Method+" "+strings.TrimSuffix(path, "/")+map[bool]string{true: "/{$}"}[path == "/"], around(h, app.Outside))
	}
	return ServeHTTP(t, mux)
}

func TestServeMux(t *testing.T) {
	const perRoute = "the limiter is on the handlers of routes, because around a ServeMux no pattern is known"
	const forgets = "http.StripPrefix and a second ServeMux forget the pattern of the first"
	const noHandling = "net/http has no error handling"
	f := Framework{
		Serve:    serveMux,
		Recovery: recovery,
		Gzip:     compress,
		Patterns: map[string]string{"HEAD of GET": "GET /items/{id}"},
		Lacks: map[string]string{
			"FromContext in a logger outside":                 "the handlers outside have a request of their own, without the decision",
			"pattern by Handler: a route of a mount":          forgets,
			"pattern by Limit of a group: a route of a mount": forgets,
			"pattern by Limit of a route: a route of a mount": forgets,
			"pattern by Handler: 404":                         perRoute,
			"pattern by Handler: 405":                         perRoute,
			"pattern by Handler: made-up method":              perRoute,
		},
	}
	for _, c := range errorHandling {
		f.Lacks[c.name] = noHandling
	}
	Run(t, f)
}

// serveChi mounts Handler by Use and Limit by Use and With.
func serveChi(t testing.TB, app App) string {
	if app.Errors {
		t.Fatal("chi has no error handling")
	}
	root := chi.NewRouter()
	for _, m := range app.Outside {
		root.Use(m.(middleware))
	}
	if app.Limiter != nil && app.Handler {
		root.Use(app.Limiter.Handler)
	}
	for _, m := range app.Inside {
		root.Use(m.(middleware))
	}
	groups := make(map[string]chi.Router)
	for _, route := range app.Routes {
		var r chi.Router = root
		prefix := ""
		for _, g := range route.Groups {
			prefix += g.Prefix
			if groups[prefix] == nil {
				groups[prefix] = chi.NewRouter()
				if app.Limiter != nil && len(g.Policies) > 0 {
					groups[prefix].Use(app.Limiter.Limit(g.Policies...))
				}
				r.Mount(g.Prefix, groups[prefix])
			}
			r = groups[prefix]
		}
		r.Method(route.Method, route.Path, handlerOf(app, route))
	}
	return ServeHTTP(t, root)
}

func TestChi(t *testing.T) {
	f := Framework{
		Serve:    serveChi,
		Recovery: recovery,
		Gzip:     compress,
		Lacks: map[string]string{
			"FromContext in a logger outside": "the handlers outside have a request of their own, without the decision",
		},
	}
	for _, c := range errorHandling {
		f.Lacks[c.name] = "chi has no error handling"
	}
	Run(t, f)
}
