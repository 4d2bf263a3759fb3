package dryroute_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/dryroute"
)

// A mark is a place. It writes its name, and the route of the request, before the next handler.
type mark struct {
	name string
	next http.Handler
}

var route = ratelimit.Route()

func (m *mark) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s[%s] ", m.name, routeOf(r))
	m.next.ServeHTTP(w, r)
}

func routeOf(r *http.Request) string {
	key, err := route(r)
	if err != nil {
		return "none"
	}
	return key
}

//go:noinline
func marked(name string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler { return &mark{name, next} }
}

var codeOfMarks = reflect.ValueOf(marked("")).Pointer()

type places struct{}

func (places) Handler(h http.Handler) (dryroute.Middleware, http.Handler) {
	if m, ok := h.(*mark); ok {
		return marked(m.name), m.next
	}
	return nil, nil
}

func (places) Middleware(mw dryroute.Middleware) dryroute.Middleware {
	if reflect.ValueOf(mw).Pointer() != codeOfMarks {
		return nil
	}
	return mw
}

// A way is what a request has met.
type way struct {
	marks string
	end   dryroute.End
	*dryroute.Builder
}

// follow returns the way of a request through the skeleton of h.
func follow(h http.Handler, r *http.Request) (way way) {
	w := httptest.NewRecorder()
	reached := 0
	way.Builder = &dryroute.Builder{Request: r, Places: places{}, Reached: func(r *http.Request, end dryroute.End) {
		reached++
		way.end = end
		fmt.Fprintf(w, "END[%s] %q %q %q", routeOf(r), r.Pattern, r.PathValue("id"), chi.URLParam(r, "id"))
	}}
	way.Of(h).ServeHTTP(w, r)
	if reached != 1 {
		fmt.Fprintf(w, " reached %d times", reached)
	}
	way.marks = w.Body.String()
	return way
}

func end(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "END[%s] %q %q %q", routeOf(r), r.Pattern, r.PathValue("id"), chi.URLParam(r, "id"))
}

// router returns a router with places in all positions that chi has.
func router(h http.HandlerFunc) *chi.Mux {
	r := chi.NewRouter()
	r.Use(marked("use"))
	r.With(marked("with")).Get("/items/{id:[0-9]+}", h)
	r.Route("/users", func(r chi.Router) {
		r.Use(marked("use1"), marked("use2"))
		r.Get("/", h)
		r.With(marked("with")).Get("/{id}", h)
		r.Group(func(r chi.Router) {
			r.Use(marked("group"))
			r.Post("/{id}/x", h)
			r.With(marked("with")).Put("/{id}/x", h)
		})
	})
	sub := chi.NewRouter()
	sub.Get("/deep/{id}", h)
	r.Mount("/api/{v}", sub)
	r.With(marked("with")).Mount("/both", func() chi.Router {
		s := chi.NewRouter()
		s.Use(marked("use"))
		s.Get("/a", h)
		return s
	}())
	r.Mount("/slash/", func() chi.Router { s := chi.NewRouter(); s.Get("/a", h); return s }())
	r.Handle("/static/*", h)
	r.With(marked("all")).Handle("/any", h)
	r.With(marked("delete")).Delete("/any", h)
	r.Method("GET", "/wrapped", marked("direct")(h))
	r.Mount("/opaque", h)
	mux := http.NewServeMux()
	mux.Handle("GET /mux/{id}", marked("inside")(h))
	r.Handle("/mux/*", marked("around")(mux))
	r.NotFound(h)
	r.MethodNotAllowed(h)
	return r
}

func TestChiRoutesAsInLife(t *testing.T) {
	ran := func(http.ResponseWriter, *http.Request) { t.Error("a handler ran") }
	outer := chi.NewRouter()
	outer.Use(marked("outermost"))
	followed := chi.NewRouter()
	followed.Use(marked("outermost"))
	outer.MethodNotAllowed(end)
	outer.Mount("/", router(end))
	followed.Mount("/", router(ran))
	for name, root := range map[string]struct{ real, followed http.Handler }{
		"a router":            {router(end), router(ran)},
		"a router in another": {outer, followed},
		"behind a place":      {marked("root")(router(end)), marked("root")(router(ran))},
		"on a ServeMux":       {on("/", router(end)), on("/", router(ran))},
	} {
		for _, q := range []string{
			"GET /items/7", "GET /items/x", "GET /users/", "GET /users", "GET /users/5", "POST /users/5/x", "PUT /users/5/x", "DELETE /users/5",
			"GET /api/v1/deep/9", "GET /api/v1", "GET /both/a", "GET /both", "GET /static/a/b", "PUT /static/", "GET /opaque", "GET /opaque/",
			"GET /opaque/z", "GET /nowhere", "BREW /items/7", "GET /any", "DELETE /any", "GET /wrapped", "POST /wrapped", "GET /mux/4", "GET /slash/a",
			"GET /slash/", "GET /slash", "GET /items/%37", "GET /",
		} {
			method, path, _ := strings.Cut(q, " ")
			w := httptest.NewRecorder()
			root.real.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			way := follow(root.followed, httptest.NewRequest(method, path, nil))
			if way.marks != w.Body.String() {
				t.Errorf("%s: %s:\n got %s\nwant %s", name, q, way.marks, w.Body)
			}
			if len(way.Faults()) > 0 || len(way.Foreign()) > 0 {
				t.Errorf("%s: %s: faults %q, foreign %q", name, q, way.Faults(), way.Foreign())
			}
		}
	}
}

func on(pattern string, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(pattern, h)
	return mux
}

func TestServeMuxRoutesAsInLife(t *testing.T) {
	muxed := func(h http.Handler) http.Handler {
		inner := http.NewServeMux()
		inner.Handle("GET /in/{id}/{$}", marked("inner")(h))
		mux := http.NewServeMux()
		for _, pattern := range []string{"GET /{$}", "GET /items/{id}", "/files/{id...}", "example.com/host/{id}", "/dir/", "POST /items/{id}"} {
			mux.Handle(pattern, marked(pattern)(h))
		}
		mux.Handle("/in/", marked("outer")(inner))
		return marked("root")(mux)
	}
	real := muxed(http.HandlerFunc(end))
	followed := muxed(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler ran") }))
	for _, q := range []string{
		"GET /", "GET /items/7", "HEAD /items/7", "GET /items/a%2Fb", "POST /items/7", "GET /files/a/b%2Fc", "GET /host/9", "GET /dir/x", "GET /in/5/",
	} {
		method, path, _ := strings.Cut(q, " ")
		w := httptest.NewRecorder()
		real.ServeHTTP(w, httptest.NewRequest(method, "http://example.com"+path, nil))
		if way := follow(followed, httptest.NewRequest(method, "http://example.com"+path, nil)); way.marks != w.Body.String() {
			t.Errorf("%s:\n got %s\nwant %s", q, way.marks, w.Body)
		}
	}
	// The mux answers these itself: it redirects, refuses or finds nothing.
	for _, q := range []string{"GET /dir", "GET //items/7", "GET /items/../dir/x", "DELETE /items/7", "GET /nowhere", "GET /in/5"} {
		method, path, _ := strings.Cut(q, " ")
		way := follow(followed, httptest.NewRequest(method, "http://example.com"+path, nil))
		if want := "root[none] "; !strings.HasPrefix(strings.TrimPrefix(way.marks, want), "END") && !strings.Contains(way.marks, "outer[") || way.end.Opaque {
			t.Errorf("%s: got %s", q, way.marks)
		}
	}
	all := httptest.NewRequest("OPTIONS", "/", nil)
	all.URL.Path, all.RequestURI = "*", "*"
	if way := follow(followed, all); !strings.Contains(way.marks, "END") {
		t.Errorf("OPTIONS *: got %s", way.marks)
	}
}

// A key function that remembers routers sees the program's, and not one more for each explanation.
func TestRequestsHaveTheRoutesOfTheProgram(t *testing.T) {
	r := router(endpoint)
	var got chi.Routes
	b := &dryroute.Builder{Request: httptest.NewRequest("GET", "/users/5", nil), Places: places{}, Reached: func(r *http.Request, _ dryroute.End) {
		got = chi.RouteContext(r.Context()).Routes
	}}
	b.Of(r).ServeHTTP(httptest.NewRecorder(), b.Request)
	if got != chi.Routes(r) {
		t.Errorf("the request has the routes of %p, want %p", got, r)
	}
}

// No middleware of others is called: its constructor may register metrics, and panic the second time.
func TestForeignMiddlewareIsNotCalled(t *testing.T) {
	r := chi.NewRouter()
	r.Use(marked("before"), once(t), marked("after"))
	r.With(once(t)).Get("/a", func(http.ResponseWriter, *http.Request) { t.Error("a handler ran") })
	way := follow(r, httptest.NewRequest("GET", "/a", nil))
	if want := `before[route:GET /a] after[route:GET /a] END[route:GET /a] "/a" "" ""`; way.marks != want {
		t.Errorf("got %s, want %s", way.marks, want)
	}
	if got := way.Foreign(); len(got) != 1 || got[0] != "dryroute_test.once.func1" {
		t.Errorf("foreign middleware %q", got)
	}
}

// once returns middleware that panics if it is built twice, or run.
//
//go:noinline
func once(t *testing.T) func(http.Handler) http.Handler {
	built := false
	return func(http.Handler) http.Handler {
		if built {
			panic("built twice")
		}
		built = true
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("middleware ran") })
	}
}

type api struct{ chi.Router }

type engine struct{}

func (engine) ServeHTTP(http.ResponseWriter, *http.Request) { panic("it ran") }

var strip = func() func(http.Handler) http.Handler { // not inlined
	f := http.StripPrefix
	return func(h http.Handler) http.Handler { return f("/", h) }
}()

func endpoint(http.ResponseWriter, *http.Request) { panic("it ran") }

func TestEnds(t *testing.T) {
	inner := http.HandlerFunc(endpoint)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "example.com"})
	custom := chi.NewRouter()
	custom.Get("/a", endpoint)
	custom.With(marked("x")).NotFound(endpoint)
	for _, tt := range []struct {
		h    http.Handler
		path string
		want dryroute.End
	}{
		{inner, "/", dryroute.End{Name: "dryroute_test.endpoint"}},
		{on("/a", inner), "/a", dryroute.End{Name: "dryroute_test.endpoint", Routed: true}},
		{on("/a/", inner), "/a/b", dryroute.End{Name: "dryroute_test.endpoint"}},
		{on("/a", inner), "/b", dryroute.End{Name: "http.NotFound", Routed: true}},
		{engine{}, "/", dryroute.End{Name: "dryroute_test.engine", Opaque: true, Routes: true}},
		{http.HandlerFunc(engine{}.ServeHTTP), "/", dryroute.End{Name: "dryroute_test.engine.ServeHTTP-fm", Opaque: true}},
		{strip(inner), "/", dryroute.End{Name: "http.StripPrefix.func1", Opaque: true}},
		{http.TimeoutHandler(inner, time.Second, ""), "/", dryroute.End{Name: "*http.timeoutHandler", Opaque: true, Routes: true}},
		{http.FileServer(http.Dir(".")), "/", dryroute.End{Name: "*http.fileHandler"}},
		{proxy, "/", dryroute.End{Name: "*httputil.ReverseProxy"}},
		{custom, "/b", dryroute.End{Name: "http.Handler.ServeHTTP-fm", Opaque: true, Routed: true}},
		{nil, "/", dryroute.End{Name: "<nil>", Opaque: true, Routes: true}},
	} {
		if way := follow(tt.h, httptest.NewRequest("GET", tt.path, nil)); way.end != tt.want {
			t.Errorf("%T %s: got %+v, want %+v", tt.h, tt.path, way.end, tt.want)
		}
	}
}

func TestFaults(t *testing.T) {
	itself := http.NewServeMux()
	itself.Handle("/", itself)
	sub := router(endpoint)
	if way := follow(itself, httptest.NewRequest("GET", "/", nil)); len(way.Faults()) != 1 || !strings.Contains(way.Faults()[0], "nested") {
		t.Errorf("a mux in itself: faults %q", way.Faults())
	}
	way := follow(api{sub}, httptest.NewRequest("GET", "/users/5", nil))
	if !slices.Equal(way.Faults(), []string{"dryroute_test.api is followed as a chi router: what else its ServeHTTP does is not known"}) || !strings.Contains(way.marks, "use2[") {
		t.Errorf("a router with a method of its own: faults %q, marks %s", way.Faults(), way.marks)
	}
}

// A skeleton of a large router takes milliseconds, and is not kept.
func BenchmarkChi1000Routes(b *testing.B) {
	r := chi.NewRouter()
	r.Use(marked("use"))
	for i := range 1000 {
		r.With(marked("with")).Get(fmt.Sprintf("/a%d/{id}", i), endpoint)
	}
	req := httptest.NewRequest("GET", "/a77/5", nil)
	for b.Loop() {
		follow(r, req)
	}
}
