package ratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
)

// routes is a place for a limiter that notes by which route it would limit.
type routes struct {
	keys []string
	errs []error
}

func (rs *routes) limit(next http.Handler) http.Handler {
	route := ratelimit.Route()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := route(r)
		rs.keys, rs.errs = append(rs.keys, key), append(rs.errs, err)
		next.ServeHTTP(w, r)
	})
}

// serve has the handler that build makes serve a request, and returns the keys that were noted on the way.
func serve(build func(*routes) http.Handler, method, target string) *routes {
	var rs routes
	r := httptest.NewRequest("GET", target, nil)
	if strings.HasPrefix(target, "/") {
		r.Host = "localhost" // example.com is one of the routes
	}
	r.Method = method // NewRequest would refuse what some servers let through
	build(&rs).ServeHTTP(httptest.NewRecorder(), r)
	return &rs
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// routeTest expects a request to have the key want in places places where a limiter is mounted.
type routeTest struct {
	name, method, target string
	places               int
	want                 string
}

func (tt routeTest) check(t *testing.T, build func(*routes) http.Handler) {
	t.Run(tt.name, func(t *testing.T) {
		got := serve(build, tt.method, tt.target)
		if want := slices.Repeat([]string{tt.want}, tt.places); !slices.Equal(got.keys, want) {
			t.Errorf("%s %s: got keys %q, errors %v; want %q", tt.method, tt.target, got.keys, got.errs, want)
		}
	})
}

func TestRouteUnderServeMux(t *testing.T) {
	build := func(rs *routes) http.Handler {
		mux := http.NewServeMux()
		for _, pattern := range []string{
			"GET /items/{id}", "DELETE /items/{id}", "/any/{id}", "GET /files/{path...}", "/tree/", "GET /exact/{$}",
			"GET example.com/items/{id}", "example.org/", "/{$}",
		} {
			mux.Handle(pattern, rs.limit(ok))
		}
		return mux
	}
	for _, tt := range []routeTest{
		{"A pattern with a method", "GET", "/items/5", 1, "route:GET /items/{id}"},
		{"Another item", "GET", "/items/6?a=b", 1, "route:GET /items/{id}"},
		{"An encoded item", "GET", "/items/a%2Fb%7C", 1, "route:GET /items/{id}"},
		{"HEAD is of GET's route", "HEAD", "/items/5", 1, "route:GET /items/{id}"},
		{"Another method", "DELETE", "/items/5", 1, "route:DELETE /items/{id}"},
		{"A pattern without a method", "GET", "/any/5", 1, "route:/any/{id}"},
		{"A method that somebody made up", "EVIL", "/any/5", 1, "route:/any/{id}"},
		{"A wildcard", "GET", "/files/a/b/c", 1, "route:GET /files/{path...}"},
		{"A subtree", "POST", "/tree/a/b/c", 1, "route:/tree/"},
		{"A subtree's root", "POST", "/tree/", 1, "route:/tree/"},
		{"A path with a slash at its end", "GET", "/exact/", 1, "route:GET /exact/{$}"},
		{"The root", "GET", "/", 1, "route:/{$}"},
		{"A host", "GET", "http://example.com/items/5", 1, "route:GET example.com/items/{id}"},
		{"A host alone", "GET", "http://example.org/any/5", 1, "route:example.org/"},
		{"No route is not limited here", "GET", "/none", 0, ""},
		{"A wrong method is not limited here", "PUT", "/items/5", 0, ""},
		{"A redirect is not limited here", "GET", "/tree", 0, ""},
	} {
		tt.check(t, build)
	}
}

func TestRouteAroundAServeMuxSaysWhereToMount(t *testing.T) {
	got := serve(func(rs *routes) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", ok)
		return rs.limit(mux)
	}, "GET", "/items/5")
	checkKey(t, finds(got.keys[0], got.errs[0]), requestWith(), "")
	checkText(t, got.errs[0].Error(), "ServeMux", "mount")
}

func TestRouteWithoutARouter(t *testing.T) {
	checkKey(t, ratelimit.Route(), requestWith(), "")
}

// everywhere is a chi router with a limiter in each place where one can be.
func everywhere(rs *routes) http.Handler {
	posts := chi.NewRouter()
	posts.Use(rs.limit)
	posts.With(rs.limit).Get("/", ok)
	posts.With(rs.limit).Get("/{post}", ok)

	root := chi.NewRouter()
	root.Use(rs.limit)
	root.With(rs.limit).Get("/", ok)
	root.With(rs.limit).Get("/items/{id}", ok)
	root.With(rs.limit).Get("/items/{id:[a-z]+}/{rest:.*}", ok)
	root.With(rs.limit).Get("/slash/", ok)
	root.With(rs.limit).Get("/files/*", ok)
	root.With(rs.limit).Handle("/any", ok)
	root.Group(func(r chi.Router) {
		r.Use(rs.limit)
		r.Get("/group/{id}", ok)
	})
	root.Route("/users", func(r chi.Router) {
		r.Use(rs.limit)
		r.With(rs.limit).Get("/", ok)
		r.With(rs.limit).Get("/{id}", ok)
		r.With(rs.limit).Get("/{id}/files/*", ok)
		r.Mount("/{id}/posts", posts)
	})
	admin := chi.NewRouter()
	admin.Use(rs.limit)
	admin.With(rs.limit).Get("/", ok)
	admin.With(rs.limit).Get("/{id}", ok)
	root.With(rs.limit).Mount("/admin", admin)
	mux := http.NewServeMux()
	mux.Handle("GET /mux/items/{id}", ok)
	root.With(rs.limit).Mount("/mux", mux)
	return root
}

func TestRouteUnderChiIsTheSameEverywhere(t *testing.T) {
	for _, tt := range []routeTest{
		{"The root", "GET", "/", 2, "route:GET /"},
		{"With", "GET", "/items/5", 2, "route:GET /items/{id}"},
		{"Another item", "GET", "/items/6?a=b", 2, "route:GET /items/{id}"},
		{"An encoded slash", "GET", "/items/a%2Fb", 2, "route:GET /items/{id}"},
		{"An encoded pattern", "GET", "/items/%7Bid%7D%2A", 2, "route:GET /items/{id}"},
		{"A path that looks like a wildcard", "GET", "/items/*", 2, "route:GET /items/{id}"},
		{"A regular expression", "GET", "/items/a/b", 2, "route:GET /items/{id:[a-z]+}/{rest:.*}"},
		{"A slash at the end is dropped", "GET", "/slash/", 2, "route:GET /slash"},
		{"A wildcard", "GET", "/files/a/b", 2, "route:GET /files/*"},
		{"An empty wildcard", "GET", "/files/", 2, "route:GET /files/*"},
		{"Group", "GET", "/group/5", 2, "route:GET /group/{id}"},
		{"Any method that chi knows", "PUT", "/any", 2, "route:PUT /any"},
		{"A sub-router's root", "GET", "/users", 3, "route:GET /users"},
		{"A sub-router's root with a slash", "GET", "/users/", 3, "route:GET /users"},
		{"A sub-router's route", "GET", "/users/5", 3, "route:GET /users/{id}"},
		{"A sub-router's encoded path", "GET", "/users/a%2Fb", 3, "route:GET /users/{id}"},
		{"A sub-router's wildcard", "GET", "/users/5/files/a/b", 3, "route:GET /users/{id}/files/*"},
		{"A mounted router's root", "GET", "/users/5/posts", 4, "route:GET /users/{id}/posts"},
		{"A mounted router's root with a slash", "GET", "/users/5/posts/", 4, "route:GET /users/{id}/posts"},
		{"A mounted router's route", "GET", "/users/5/posts/6", 4, "route:GET /users/{id}/posts/{post}"},
		{"With on a mount", "GET", "/admin/5", 4, "route:GET /admin/{id}"},
		{"With on a mount's root", "GET", "/admin", 4, "route:GET /admin"},
		{"Nothing in a mount", "GET", "/admin/5/none", 3, "route:unmatched"},
		{"A mounted ServeMux", "GET", "/mux/items/5", 2, "route:GET /mux/*"},
		{"Nothing in a mounted ServeMux", "GET", "/mux/none", 2, "route:GET /mux/*"},
		{"Nothing", "GET", "/none", 1, "route:unmatched"},
		{"A path that is no route with a slash", "GET", "/items/5/", 1, "route:unmatched"},
		{"A double slash", "GET", "//items/5", 1, "route:unmatched"},
		{"A wrong method", "POST", "/items/5", 1, "route:unmatched"},
		{"A method that somebody made up", "EVIL", "/any", 1, "route:unmatched"},
		{"No method", "", "/any", 1, "route:unmatched"},
		{"Nothing in a sub-router", "GET", "/users/5/none", 2, "route:unmatched"},
		{"A wrong method in a sub-router", "POST", "/users/5", 2, "route:unmatched"},
		{"Nothing in a mounted router", "GET", "/users/5/posts/6/none", 3, "route:unmatched"},
	} {
		tt.check(t, everywhere)
	}
}

func TestRouteUnderChiWithoutPath(t *testing.T) {
	// As of "OPTIONS *" and of CONNECT, whose URL.Path is empty.
	var rs routes
	r := httptest.NewRequest("GET", "/", nil)
	r.URL.Path = ""
	everywhere(&rs).ServeHTTP(httptest.NewRecorder(), r)
	if !slices.Equal(rs.keys, []string{"route:GET /", "route:GET /"}) {
		t.Errorf("got keys %q", rs.keys)
	}
}

// FuzzRoute checks that the key of a request is one of few, and the same wherever the limiter is mounted.
func FuzzRoute(f *testing.F) {
	patterns := make(map[string]bool)
	for _, pattern := range strings.Fields("/ /items/{id} /items/{id:[a-z]+}/{rest:.*} /slash /files/* /any /group/{id} /users /users/{id}" +
		" /users/{id}/files/* /users/{id}/posts /users/{id}/posts/{post} /admin /admin/{id} /mux /mux/*") {
		patterns[pattern] = true
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method = method
		r.URL.Path = "/" + path
		r.URL.RawPath = ""
		if escaped := r.URL.EscapedPath(); escaped != r.URL.Path && strings.Contains(path, "%") {
			r.URL.RawPath = escaped
		}
		var rs routes
		everywhere(&rs).ServeHTTP(httptest.NewRecorder(), r)
		for i, key := range rs.keys {
			if rs.errs[i] != nil || key != rs.keys[0] {
				t.Errorf("%q %q: got keys %q, errors %v", method, path, rs.keys, rs.errs)
			}
			_, pattern, _ := strings.Cut(key, " ")
			if key != "route:unmatched" && (!patterns[pattern] || !strings.HasPrefix(key, "route:"+method+" ")) {
				t.Errorf("%q %q: got key %q, which is no route", method, path, key)
			}
		}
	})
}

func TestRouteWithChiMiddleware(t *testing.T) {
	router := func(use ...func(http.Handler) http.Handler) func(*routes) http.Handler {
		return func(rs *routes) http.Handler {
			r := chi.NewRouter()
			r.Use(use...)
			r.Use(rs.limit)
			r.With(rs.limit).Get("/items/{id}", ok)
			r.Route("/users", func(r chi.Router) {
				r.Use(rs.limit)
				r.With(rs.limit).Get("/{id}", ok)
				r.With(rs.limit).Get("/{id}/*", ok) // which the path matches as it came
			})
			admin := chi.NewRouter()
			admin.With(rs.limit).Get("/{id}", ok)
			r.With(rs.limit).Mount("/admin", admin)
			return r
		}
	}
	for _, tt := range []struct {
		use func(http.Handler) http.Handler
		routeTest
	}{
		{middleware.StripSlashes, routeTest{"StripSlashes", "GET", "/items/5/", 2, "route:GET /items/{id}"}},
		{middleware.StripSlashes, routeTest{"StripSlashes without one", "GET", "/items/5", 2, "route:GET /items/{id}"}},
		{middleware.StripSlashes, routeTest{"StripSlashes and a sub-router", "GET", "/users/5/", 3, "route:GET /users/{id}"}},
		{middleware.StripSlashes, routeTest{"StripSlashes and With on a mount", "GET", "/admin/5/", 3, "route:GET /admin/{id}"}},
		{middleware.CleanPath, routeTest{"CleanPath and With on a mount", "GET", "/admin//5", 3, "route:GET /admin/{id}"}},
		{middleware.CleanPath, routeTest{"CleanPath", "GET", "/items//5", 2, "route:GET /items/{id}"}},
		{middleware.CleanPath, routeTest{"CleanPath and a sub-router", "GET", "/users//5", 3, "route:GET /users/{id}"}},
		{middleware.GetHead, routeTest{"GetHead", "HEAD", "/items/5", 2, "route:GET /items/{id}"}},
		{middleware.GetHead, routeTest{"GetHead and a sub-router", "HEAD", "/users/5", 3, "route:GET /users/{id}"}},
		{middleware.StripPrefix("/v1"), routeTest{"StripPrefix", "GET", "/v1/items/5", 2, "route:GET /items/{id}"}},
		{middleware.StripPrefix("/v1"), routeTest{"StripPrefix and a sub-router", "GET", "/v1/users/a%2Fb", 3, "route:GET /users/{id}"}},
	} {
		tt.check(t, router(tt.use))
	}
}

func TestRouteWithSeveralRouters(t *testing.T) {
	api := func(rs *routes) chi.Router {
		r := chi.NewRouter()
		r.Use(rs.limit)
		r.With(rs.limit).Get("/items/{id}", ok)
		return r
	}
	muxIn := func(mount func(mux http.Handler) http.Handler, pattern string) func(*routes) http.Handler {
		return func(rs *routes) http.Handler {
			mux := http.NewServeMux()
			mux.Handle(pattern, rs.limit(ok))
			r := chi.NewRouter()
			r.Mount("/v1", mount(mux))
			return r
		}
	}
	asIs := func(h http.Handler) http.Handler { return h }
	stripped := func(h http.Handler) http.Handler { return http.StripPrefix("/v1", h) }
	for _, tt := range []struct {
		routeTest
		build func(*routes) http.Handler
	}{
		{
			routeTest{"chi within a ServeMux", "GET", "/v1/items/5", 2, "route:GET /v1/items/{id}"},
			func(rs *routes) http.Handler {
				mux, r := http.NewServeMux(), chi.NewRouter()
				r.Use(rs.limit)
				r.With(rs.limit).Get("/v1/items/{id}", ok)
				mux.Handle("/v1/", r)
				return mux
			},
		},
		{
			routeTest{"chi within a ServeMux, nothing found", "GET", "/v1/none", 1, "route:unmatched"},
			func(rs *routes) http.Handler {
				mux, r := http.NewServeMux(), chi.NewRouter()
				r.Use(rs.limit)
				r.Get("/v1/items/{id}", ok)
				mux.Handle("/v1/", r)
				return mux
			},
		},
		{
			routeTest{"chi within a ServeMux without the prefix", "GET", "/v1/items/5", 2, "route:GET /items/{id}"},
			func(rs *routes) http.Handler {
				mux := http.NewServeMux()
				mux.Handle("/v1/", http.StripPrefix("/v1", api(rs)))
				return mux
			},
		},
		{
			routeTest{"A ServeMux within chi", "GET", "/v1/items/5", 1, "route:/v1/* GET /v1/items/{id}"},
			muxIn(asIs, "GET /v1/items/{id}"),
		},
		{
			routeTest{"A ServeMux within chi without the prefix", "GET", "/v1/items/5", 1, "route:/v1/* GET /items/{id}"},
			muxIn(stripped, "GET /items/{id}"),
		},
		{
			routeTest{"A ServeMux within chi, for any method", "PUT", "/v1/items/5", 1, "route:/v1/* /items/{id}"},
			muxIn(stripped, "/items/{id}"),
		},
		{
			routeTest{"A ServeMux within chi within a ServeMux", "GET", "/v1/items/5", 1, "route:/v1/* GET /items/{id}"},
			func(rs *routes) http.Handler {
				mux := http.NewServeMux()
				mux.Handle("/", muxIn(stripped, "GET /items/{id}")(rs))
				return mux
			},
		},
		{
			routeTest{"A wrapped chi router within chi", "GET", "/v1/items/5", 1, "route:GET /v1/items/{id}"},
			func(rs *routes) http.Handler {
				sub, r := chi.NewRouter(), chi.NewRouter()
				sub.With(rs.limit).Get("/items/{id}", ok)
				r.Mount("/v1", middleware.NoCache(sub))
				return r
			},
		},
		{
			// The root has a route of its own that the stripped path would match.
			routeTest{"A chi router within chi without the prefix is not mistaken for the root", "GET", "/v1/items/5", 1, "route:GET /v1/*"},
			func(rs *routes) http.Handler {
				sub, r := chi.NewRouter(), chi.NewRouter()
				sub.Use(rs.limit)
				sub.Get("/items/{id}", ok)
				r.Get("/items/{id}", ok)
				r.Mount("/v1", http.StripPrefix("/v1", sub))
				return r
			},
		},
	} {
		tt.check(t, tt.build)
	}
}

// A remembering router finds a route, and counts what it finds in the context of others.
type remembering struct {
	*chi.Mux
	left int
}

func (r *remembering) Find(rctx *chi.Context, _, path string) string {
	r.left += len(rctx.URLParams.Keys) + len(rctx.RoutePatterns)
	rctx.URLParams.Add("id", path)
	rctx.RoutePatterns = append(rctx.RoutePatterns, "/{id}")
	return "/{id}"
}

// What chi appends to it would otherwise grow with each request.
func TestARouteIsFoundWithoutWhatOthersHaveLeft(t *testing.T) {
	router, route := new(remembering), ratelimit.Route()
	for range 100 { // the pool may lose some
		rctx := chi.NewRouteContext()
		rctx.Routes = router
		r := httptest.NewRequest("GET", "/5", nil)
		key, err := route(r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, rctx)))
		if key != "route:GET /{id}" || err != nil {
			t.Fatalf("key %q, error %v", key, err)
		}
	}
	if router.left > 0 {
		t.Errorf("%d parameters and patterns of other requests", router.left)
	}
}
