// Code generated from routes_test.go of echo v4 by go test -update there; DO NOT EDIT.

package echoratelimit_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

// perRoute is a policy with one bucket for each route.
func perRoute(n int64) ratelimit.Policy {
	return ratelimit.Policy{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerHour(n)}
}

// A decided is the route and the key of a decision.
type decided struct{ route, key string }

// watchedLimits returns limits with a policy for each route, and their decisions.
func watchedLimits(t *testing.T) (*echoratelimit.Limiter, <-chan decided) {
	t.Helper()
	got := make(chan decided, 100)
	return newLimits(t, ratelimit.Config{
		Logger:   silent,
		Policies: []ratelimit.Policy{perRoute(1000)},
		Observe: func(_ context.Context, e *ratelimit.Event) {
			d := decided{route: e.Route}
			if len(e.Results) > 0 {
				d.key = e.Results[0].Key
			}
			got <- d
		},
	}, echoratelimit.Config{}), got
}

func TestPatterns(t *testing.T) {
	for name, mount := range map[string]func(e *echo.Echo, m echo.MiddlewareFunc) (of []echo.MiddlewareFunc){
		"Use":    func(e *echo.Echo, m echo.MiddlewareFunc) []echo.MiddlewareFunc { e.Use(m); return nil },
		"routes": func(_ *echo.Echo, m echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{m} },
	} {
		t.Run(name, func(t *testing.T) {
			limits, got := watchedLimits(t)
			e := newHeadEcho()
			m := mount(e, limits.Handler())
			e.GET("", hello, m...)
			e.GET("/get", hello, m...)
			e.POST("/get", hello, m...)
			e.GET("/users/:id", hello, m...)
			e.GET("/files/*", hello, m...)
			e.Any("/any", hello, m...)
			e.Add("PURGE", "/cache", hello, m...)
			e.GET("/a\\:b", hello, m...)
			group := e.Group("/api", m...)
			group.GET("/items/:id", hello)
			nested := group.Group("/v1")
			nested.GET("/items/:id", hello)

			c := serve(t, e)
			for _, tt := range []struct {
				method, path string
				status       int
				want         string
				only         string // "": with both
			}{
				{"GET", "/", 200, "GET /", ""},
				{"GET", "/get", 200, "GET /get", ""},
				{"POST", "/get?a=b", 200, "POST /get", ""},
				{"HEAD", "/get", headOfGetStatus, headOfGet + " /get", headOfGetOnly},
				{"GET", "/users/7", 200, "GET /users/:id", ""},
				{"GET", "/users/a%2Fb", 200, "GET /users/:id", ""},
				{"GET", "/files/a/b", 200, "GET /files/*", ""},
				{"PATCH", "/any", 200, "PATCH /any", ""},
				{"PURGE", "/cache", 200, "/cache", ""},
				{"GET", "/a:b", 200, "GET " + literalColon, ""},
				{"GET", "/api/items/7", 200, "GET /api/items/:id", ""},
				{"GET", "/api/v1/items/7", 200, "GET /api/v1/items/:id", ""},
				{"GET", "/api/unknown", 404, "GET /api/*", "routes"},
				{"GET", "/api/unknown", 404, "unmatched", "Use"},
				{"GET", "/unknown", 404, "unmatched", "Use"},
				{"MADEUP", "/unknown", 404, "unmatched", "Use"},
				{"DELETE", "/users/7", 405, "DELETE /users/:id", "Use"},
				{"MADEUP", "/users/7", 405, "/users/:id", "Use"},
			} {
				if tt.only != "" && tt.only != name {
					continue
				}
				if r := c.send(tt.method, tt.path); r.status != tt.status {
					t.Errorf("%s %s: status %d, want %d", tt.method, tt.path, r.status, tt.status)
				}
				if d := next(t, got); d != (decided{tt.want, "route:" + tt.want}) {
					t.Errorf("%s %s: %+v, want %q", tt.method, tt.path, d, tt.want)
				}
			}
		})
	}
}

// Before the router has looked for a route, a key by routes would be one for all requests.
func TestNoRouteInPre(t *testing.T) {
	limits, got := watchedLimits(t)
	e := newEcho()
	e.Pre(limits.Handler())
	e.GET("/users/:id", hello)
	e.POST("/post", hello)
	c := serve(t, e)
	c.wantStatuses("GET", "/users/7", 403)
	c.wantStatuses("GET", "/post", 403)
	for range 2 {
		if d := next(t, got); d != (decided{}) {
			t.Errorf("%+v, want no route", d)
		}
	}
}

// Tracing reports the route, and nothing for a path that matches none.
func TestMiddlewareSeesThePattern(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perRoute(1)}}, echoratelimit.Config{})
	e := newEcho()
	inside, outside := make(chan string, 1), make(chan string, 1)
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			defer func() { outside <- c.Request().Pattern }()
			return next(c)
		}
	}, limits.Handler(), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			inside <- c.Request().Pattern
			return next(c)
		}
	})
	e.GET("/users/:id", hello)
	patterns := make(chan string, 1)
	around := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			patterns <- r.Pattern
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/", around(e))
	for server, unknown := range map[*client]string{serve(t, around(e)): "", serve(t, mux): "/"} {
		for _, key := range []string{"route:GET /users/:id", "route:unmatched"} {
			if _, err := limits.Reset(t.Context(), perRoute(1), key); err != nil {
				t.Fatal(err)
			}
		}
		for _, status := range []int{200, 429} {
			server.wantStatuses("GET", "/users/7", status)
			if got := next(t, patterns); got != "GET /users/:id" {
				t.Errorf("status %d: pattern %q", status, got)
			}
			if got := next(t, outside); got != "GET /users/:id" {
				t.Errorf("status %d: outside: pattern %q", status, got)
			}
			if status != 429 {
				if got := next(t, inside); got != "GET /users/:id" {
					t.Errorf("inside: pattern %q", got)
				}
			}
		}
		for _, status := range []int{404, 429} {
			server.wantStatuses("GET", "/unknown", status)
			if got := next(t, patterns); got != unknown {
				t.Errorf("status %d: pattern %q, want %q", status, got, unknown)
			}
			if got := next(t, outside); got != "" {
				t.Errorf("status %d: outside: pattern %q", status, got)
			}
			if status != 429 {
				if got := next(t, inside); got != "" {
					t.Errorf("inside: pattern %q", got)
				}
			}
		}
	}
}

func TestUnderChi(t *testing.T) {
	limits, got := watchedLimits(t)
	e := newEcho()
	e.Use(limits.Handler())
	e.GET("/api/users/:id", hello)
	r := chi.NewRouter()
	r.Mount("/api", e)
	c := serve(t, r)
	c.wantStatuses("GET", "/api/users/7", 200)
	if d := next(t, got); d.key != "route:/api/* GET /api/users/:id" {
		t.Errorf("key %q", d.key)
	}
	c.wantStatuses("GET", "/api/unknown", 404)
	if d := next(t, got); d.key != "route:/api/* unmatched" {
		t.Errorf("key %q", d.key)
	}
}

// A client cannot make up keys.
func TestMadeUpMethodsAndPathsShareKeys(t *testing.T) {
	limits, got := watchedLimits(t)
	e := newEcho()
	e.Use(limits.Handler())
	e.GET("/users/:id", hello)
	c := serve(t, e)
	keys := map[string]bool{}
	for i := range 20 {
		for _, path := range []string{"/users/", "/unknown/"} {
			c.send("METHOD"+strings.Repeat("X", i), path+strings.Repeat("x", i+1))
			keys[next(t, got).key] = true
		}
	}
	if len(keys) != 2 {
		t.Errorf("keys %v, want 2", keys)
	}
}
