// Package fiberratelimit mounts a [ratelimit.Limiter] on Fiber v3.
package fiberratelimit

import (
	"net/http"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures a [Limiter].
type Config struct {
	// Errors returns refusals to Fiber as an error, so that the application's ErrorHandler writes the
	// response. errors.As finds a *fiber.Error with the status 429, 400, 403 or 503, and errors.Is the
	// reason, such as [ratelimit.ErrNoKey]. The headers are set before. Default: Config.Deny and
	// Config.Error of the limiter write the response.
	Errors bool
}

// A Limiter is a [ratelimit.Limiter] whose Handler and Limit are handlers of Fiber. Make it with [New].
type Limiter struct {
	*ratelimit.Limiter
	errors bool
	routes sync.Map // the pattern of each *fiber.Route
}

// New returns limiter for Fiber. It panics if limiter is nil.
func New(limiter *ratelimit.Limiter, cfg Config) *Limiter {
	if limiter == nil {
		panic("fiberratelimit: New: limiter must not be nil")
	}
	return &Limiter{Limiter: limiter, errors: cfg.Errors}
}

// Handler returns middleware that enforces Config.Policies of the limiter. It panics if there are none.
//
//	app.Use(limits.Handler())
func (l *Limiter) Handler() fiber.Handler { return l.adapt(l.Limiter.Handler(next)) }

// Limit returns middleware that enforces policies, in one call of the store. It panics on a malformed policy.
//
//	app.Post("/login", limits.Limit(login), handler)
func (l *Limiter) Limit(policies ...ratelimit.Policy) fiber.Handler {
	return l.adapt(l.Limiter.Limit(policies...)(next))
}

func (l *Limiter) adapt(limited http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		x := newCall(c, l.pattern(c))
		x.errors = l.errors
		defer x.end() // also if a handler panics
		limited.ServeHTTP(x, &x.request)
		if !x.passed && x.err == nil {
			x.WriteHeader(http.StatusOK) // unless Deny has chosen another status
		}
		return x.err
	}
}

// next runs the handlers of Fiber after the limiter has let a request through.
var next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	x := w.(*call)
	x.passed = true
	x.enter(r)
	x.err = x.c.Next()
})

// FromContext returns the decision about the request of c. After the limiter has run, ratelimit.FromContext(c.Context())
// returns it, too, but ratelimit.FromContext(c) does not.
func FromContext(c fiber.Ctx) (*ratelimit.Decision, bool) { return ratelimit.FromContext(c.Context()) }

// Ctx returns the Fiber context of a request, for key functions and other functions of a policy. It returns false
// after the limiter's handler has returned. Strings that c returns are valid for as long as c is: a key function must
// copy them, as by strings.Clone.
func Ctx(r *http.Request) (c fiber.Ctx, ok bool) {
	x, _ := r.Context().Value(callKey{}).(*call)
	if x == nil {
		return nil, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.c, x.c != nil
}

// pattern returns the method and the pattern of the route that c has matched, "" if it has matched none yet.
func (l *Limiter) pattern(c fiber.Ctx) string {
	if !c.Matched() {
		return ""
	}
	route := c.Route()
	if known, ok := l.routes.Load(route); ok {
		return known.(string)
	}
	pattern := patternOf(c.App(), route)
	l.routes.Store(route, pattern)
	return pattern
}

// patternOf returns the pattern of route, "" if route belongs to Use or to a Group. Fiber serves a HEAD by the
// handlers of the GET route, unless the application has a HEAD route: then the pattern is that of the GET, as in
// http.ServeMux, so that a HEAD is no second quota.
func patternOf(app *fiber.App, route *fiber.Route) (pattern string) {
	for _, r := range app.GetRoutes(true) {
		if r.Path != route.Path || len(r.Handlers) == 0 || &r.Handlers[0] != &route.Handlers[0] {
			continue
		}
		if r.Method == route.Method || r.Method == fiber.MethodGet && route.Method == fiber.MethodHead {
			return r.Method + " " + r.Path // GET comes before HEAD
		}
	}
	return ""
}
