package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// withPattern sets the pattern by which Route and Event.Route know the requests of h.
func withPattern(pattern string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = pattern
		h.ServeHTTP(w, r)
	})
}

const (
	madeUp     = "MADE-UP"     // a method
	notLimited = "not limited" // the router answers without the limiter
	noRoute    = ""            // the limiter knows no pattern: 403
)

// A routed is a request, and its route in the key of Route and in Event.Route.
type routed struct{ method, target, route string }

// A routerTable has the routes that requests to a router match.
type routerTable struct {
	name     string
	build    func(limit wrapper) http.Handler
	requests []routed
}

func TestRoutesOfRouters(t *testing.T) {
	t.Parallel()
	for _, table := range slices.Concat(serveMuxTables(), gorillaTables(), httprouterTables(), humaTables(), twirpTables()) {
		t.Run(table.name, func(t *testing.T) {
			t.Parallel()
			var seen events
			limiter := newLimiter(t, ratelimit.Config{Observe: seen.observe})
			perRoute := ratelimit.Policy{Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerHour(1000)}
			server := serve(t, table.build(limiter.Limit(perRoute)))
			for _, c := range table.requests {
				a := send(t, server, request(c))
				if got := seen.take(); !slices.Equal(got, c.want()) {
					t.Errorf("%s %s, answered %d: %q, want %q", c.method, c.target, a.StatusCode, got, c.want())
				}
				if forbidden := a.StatusCode == http.StatusForbidden; forbidden != (c.route == noRoute) {
					t.Errorf("%s %s: status %d", c.method, c.target, a.StatusCode)
				}
			}
		})
	}
}

// want returns the events of c.
func (c routed) want() []string {
	switch c.route {
	case notLimited:
		return nil
	case noRoute:
		return []string{"no key, Event.Route "}
	}
	return []string{"key route:" + c.route + ", Event.Route " + c.route}
}

// request makes a request to a server that of c.
func request(c routed) func(*http.Request) {
	return func(r *http.Request) {
		r.Method, r.URL.Path = c.method, c.target
		if rest, ok := strings.CutPrefix(c.target, "http://"); ok {
			host, path, _ := strings.Cut(rest, "/")
			r.Host, r.URL.Path = host, "/"+path
		}
	}
}

// events collects decisions.
type events struct {
	mu   sync.Mutex
	seen []string
}

func (e *events) observe(_ context.Context, event *ratelimit.Event) {
	text := fmt.Sprint(event.Err)
	switch {
	case errors.Is(event.Err, ratelimit.ErrNoKey):
		text = "no key"
	case len(event.Results) > 0:
		text = "key " + event.Results[0].Key
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, text+", Event.Route "+event.Route)
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.seen
	e.seen = nil
	return seen
}

// Around a router, all requests are limited, also those that it answers itself. Their pattern is not known.
func TestAroundRoutersAllRequestsAreLimited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		router   http.Handler
		requests []routed // with the status in the place of the route
	}{
		"ServeMux":    {itemsMux(direct), []routed{{"GET", "/items/5", "200"}, {"GET", "/none", "404"}, {"PUT", "/items/5", "405"}, {"GET", "//items/5", "307"}}},
		"gorilla/mux": {gorilla(), []routed{{"GET", "/items/5", "200"}, {"GET", "/none", "404"}, {"DELETE", "/items/5", "405"}, {"GET", "//items/5", "301"}}},
		"httprouter":  {julien(direct), []routed{{"GET", "/items/5", "200"}, {"GET", "/none/5", "404"}, {"PUT", "/items/5", "405"}, {"GET", "/items/5/", "301"}, {"OPTIONS", "/items/5", "200"}}},
		"huma":        {humaItems(direct), []routed{{"GET", "/items/5", "200"}, {"GET", "/none", "404"}, {"PUT", "/items/5", "405"}, {"GET", "/openapi.json", "200"}}},
		"Twirp":       {haberdashery(direct), []routed{{"POST", makeHat, "200"}, {"GET", makeHat, "404"}, {"POST", service + "None", "404"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen events
			limiter := newLimiter(t, ratelimit.Config{
				Policies: []ratelimit.Policy{everybody(ratelimit.PerHour(1000)), {Name: "route", Key: ratelimit.Route(), Limit: ratelimit.PerHour(1), Optional: true}},
				Observe:  seen.observe,
			})
			server := serve(t, limiter.Handler(c.router))
			for _, r := range c.requests {
				a := send(t, server, request(r), protobuf)
				if got := fmt.Sprint(a.StatusCode); got != r.route {
					t.Errorf("%s %s: status %s, want %s", r.method, r.target, got, r.route)
				}
				if got := seen.take(); !slices.Equal(got, []string{"key static:everybody, Event.Route "}) {
					t.Errorf("%s %s: %q", r.method, r.target, got)
				}
			}
		})
	}
}

// docs/routers.md shows how to mount the limiter. The login is denied alone, and other paths are limited, too.
func TestMountsOfTheGuide(t *testing.T) {
	t.Parallel()
	type guide = func(*ratelimit.Limiter, ratelimit.Policy, http.Handler) http.Handler
	for name, c := range map[string]struct {
		mount        guide
		login, other string // paths
		limits       [2]int // how many limiters decide about a request for each
	}{
		"ServeMux":    {serveMuxGuide, "/login", "/none", [2]int{1, 1}},
		"gorilla/mux": {gorillaGuide, "/login", "/none", [2]int{2, 1}},
		"httprouter":  {httprouterGuide, "/login", "/none", [2]int{1, 1}},
		"huma":        {humaGuide, "/login", "/none", [2]int{2, 0}},
		"Twirp":       {twirpGuide, makeHat, service + "None", [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			login := everybody(ratelimit.Every(time.Hour))
			login.Name = "login"
			var seen events
			limiter := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.PerHour(9))}, Observe: seen.observe})
			url := serve(t, c.mount(limiter, login, okHandler))
			for i, r := range []struct {
				path   string
				status int
			}{{c.login, http.StatusOK}, {c.other, http.StatusNotFound}} {
				a := send(t, url+r.path, method(http.MethodPost), protobuf)
				if got := seen.take(); a.StatusCode != r.status || len(got) != c.limits[i] {
					t.Errorf("%s: status %d, body %q, decisions %q, want %d", r.path, a.StatusCode, a.body, got, c.limits[i])
				}
			}
			wantDenial(t, send(t, url+c.login, method(http.MethodPost), protobuf))
		})
	}
}

// direct limits nothing.
func direct(h http.Handler) http.Handler { return h }
