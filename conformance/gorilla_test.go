package conformance

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/gorilla/mux"

	"github.com/go-tokenbucket/ratelimit"
)

// template returns the path template of the matched route as the key, such as "route:/items/{id}".
func template(r *http.Request) (string, error) {
	route := mux.CurrentRoute(r)
	if route == nil {
		return "", ratelimit.ErrNoKey // the limiter is around the router
	}
	path, err := route.GetPathTemplate()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ratelimit.ErrNoKey, err) // the route has no path
	}
	return "route:" + path, nil
}

func limitEachRoute(limiter *ratelimit.Limiter, r *mux.Router) {
	perRoute := ratelimit.Policy{
		Name:  "route",
		Key:   ratelimit.Join(ratelimit.RemoteIP(), template),
		Limit: ratelimit.PerMinute(60),
	}
	r.Use(limiter.Limit(perRoute))
}

// gorilla is a router of gorilla/mux.
func gorilla() *mux.Router {
	r := mux.NewRouter()
	r.Handle("/items/{id}", okHandler).Methods("GET", "PUT")
	r.Handle("/users/{id}", okHandler)
	r.Host("files.example").Handler(okHandler)
	return r
}

// statusOf serves a request and returns the status and X-RateLimit-Remaining.
func statusOf(h http.Handler, method, target string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return fmt.Sprintf("%d %s", w.Code, w.Header().Get("X-RateLimit-Remaining"))
}

// docs/routers.md says which requests are limited under gorilla/mux.
func TestAroundGorillaMuxAllRequestsAreLimited(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.PerHour(9))}})
	for name, c := range map[string]struct {
		h    http.Handler
		want []string
	}{
		"around it": {l.Handler(gorilla()), []string{"200 8", "404 7", "405 6", "301 5"}},
		"in Use": {func() http.Handler {
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.PerHour(9))}})
			r := gorilla()
			r.Use(l.Handler)
			return r
		}(), []string{"200 8", "404 ", "405 ", "301 "}},
	} {
		got := []string{
			statusOf(c.h, "GET", "/items/5"),
			statusOf(c.h, "GET", "/none"),
			statusOf(c.h, "POST", "/items/5"),
			statusOf(c.h, "GET", "//items/5"),
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRoutesOfGorillaMux(t *testing.T) {
	t.Parallel()
	r := gorilla()
	limitEachRoute(newLimiter(t, ratelimit.Config{}), r)
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/items/5", "200 59"},
		{"PUT", "/items/6", "200 58"},
		{"GET", "/users/5", "200 59"},
		{"GET", "http://files.example/made/up", "403 "},
	} {
		if got := statusOf(r, c.method, c.target); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.target, got, c.want)
		}
	}
	around := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{{Name: "p", Key: template, Limit: ratelimit.PerMinute(1)}}})
	if got := statusOf(around.Handler(gorilla()), "GET", "/items/5"); got != "403 " {
		t.Errorf("around the router: %s, want 403", got)
	}
}

// Route does not know the routes of gorilla/mux.
func TestRouteUnderGorillaMux(t *testing.T) {
	t.Parallel()
	build := func() *mux.Router {
		r := gorilla()
		r.Use(newLimiter(t, ratelimit.Config{}).Limit(ratelimit.Policy{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerHour(9)}))
		return r
	}
	if got := statusOf(build(), "GET", "/items/5"); got != "403 " {
		t.Errorf("%s, want 403", got)
	}
	m := http.NewServeMux()
	m.Handle("/", build())
	for i, path := range []string{"/items/5", "/users/5"} {
		if got, want := statusOf(m, "GET", path), fmt.Sprint("200 ", 8-i); got != want {
			t.Errorf("in a ServeMux, %s: %s, want %s, of one bucket for all routes", path, got, want)
		}
	}
}
