package echoratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit"
)

// perRoute is a policy with one bucket for each route.
func perRoute(n int64) ratelimit.Policy {
	return ratelimit.Policy{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerHour(n)}
}

// A decided is the route and the key of a decision.
type decided struct{ route, key string }

// watchedLimits returns limits with a policy for each route, and their last decision.
func watchedLimits(t *testing.T) (*echoratelimit.Limiter, *decided) {
	t.Helper()
	last := new(decided)
	return newLimits(t, ratelimit.Config{
		Policies: []ratelimit.Policy{perRoute(1000)},
		Observe: func(_ context.Context, e *ratelimit.Event) {
			*last = decided{route: e.Route}
			if len(e.Results) > 0 {
				last.key = e.Results[0].Key
			}
		},
	}, echoratelimit.Config{}), last
}

func TestPatterns(t *testing.T) {
	limits, got := watchedLimits(t)
	e := newEcho()
	e.Use(limits.Handler())
	e.GET("", hello)
	e.POST("/get", hello)
	e.GET("/users/:id", hello)
	e.GET("/files/*", hello)
	e.Any("/any", hello)
	e.Add("PURGE", "/cache", hello)
	e.GET("/a\\:b", hello)
	e.Group("/api").GET("/items/:id", hello)

	// Here the limiter is on a group, which echo gives a route for all other paths.
	grouped := newEcho()
	grouped.Group("/api", limits.Handler()).GET("/items/:id", hello)
	for _, tt := range []struct {
		e            *echo.Echo
		method, path string
		status       int
		want         string
	}{
		{e, "GET", "/", 200, "GET /"},
		{e, "POST", "/get?a=b", 200, "POST /get"},
		{e, "GET", "/users/a%2Fb", 200, "GET /users/:id"},
		{e, "GET", "/files/a/b", 200, "GET /files/*"},
		{e, "PATCH", "/any", 200, "PATCH /any"},
		{e, "PURGE", "/cache", 200, "/cache"},
		{e, "GET", "/a:b", 200, "GET " + literalColon},
		{e, "GET", "/api/unknown", 404, "unmatched"},
		{e, "MADEUP", "/unknown", 404, "unmatched"},
		{grouped, "GET", "/api/unknown", 404, "GET /api/*"},
	} {
		if r := send(tt.e, tt.method, tt.path); r.status != tt.status || *got != (decided{tt.want, "route:" + tt.want}) {
			t.Errorf("%s %s: status %d, want %d; %+v, want %q", tt.method, tt.path, r.status, tt.status, *got, tt.want)
		}
	}
}

// Before the router has looked for a route, a key by routes would be one for all requests.
func TestNoRouteInPre(t *testing.T) {
	limits, got := watchedLimits(t)
	e := newEcho()
	e.Pre(limits.Handler())
	e.GET("/users/:id", hello)
	e.POST("/post", hello)
	for _, path := range []string{"/users/7", "/post"} {
		*got = decided{"none", "none"}
		wantStatuses(t, e, "GET", path, 403)
		if *got != (decided{}) {
			t.Errorf("%s: %+v, want no route", path, *got)
		}
	}
}

// Tracing reports the route, and nothing for a path that matches none.
func TestMiddlewareSeesThePattern(t *testing.T) {
	for unknown, around := range map[string]func(http.Handler) http.Handler{
		"": func(h http.Handler) http.Handler { return h },
		"/": func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/", h)
			return mux
		},
	} {
		var inside, outside string
		see := func(to *string) echo.MiddlewareFunc {
			return func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					defer func() { *to = c.Request().Pattern }()
					return next(c)
				}
			}
		}
		e := newEcho()
		limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perRoute(1)}}, echoratelimit.Config{})
		e.Use(see(&outside), limits.Handler(), see(&inside))
		e.GET("/users/:id", hello)
		for path, want := range map[string]string{"/users/7": "GET /users/:id", "/unknown": ""} {
			ofRequest := want
			if want == "" {
				ofRequest = unknown
			}
			for _, denied := range []bool{false, true} {
				inside, outside = "not called", "not called"
				r := httptest.NewRequest("GET", path, nil)
				w := httptest.NewRecorder()
				around(e).ServeHTTP(w, r)
				if (w.Code == 429) != denied || r.Pattern != ofRequest || outside != want || (inside == want) == denied {
					t.Errorf("%s: status %d: pattern %q, outside %q, inside %q; want %q", path, w.Code, r.Pattern, outside, inside, ofRequest)
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
	for path, want := range map[string]string{"/api/users/7": "route:/api/* GET /api/users/:id", "/api/unknown": "route:/api/* unmatched"} {
		if send(r, "GET", path); got.key != want {
			t.Errorf("%s: key %q, want %q", path, got.key, want)
		}
	}
}
