// Package fiberratelimit mounts a [ratelimit.Limiter] on Fiber v3.
//
//	limits := fiberratelimit.New(limiter, fiberratelimit.Config{})
//	app.Use("*", limits.Handler())
//	app.Post("/login", limits.Limit(login), handler)
//
// A program to try is in https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/fiberratelimit/example.
//
// Mount Handler with the path "*". Fiber runs the middleware of a Use without a path only for paths that begin with a
// slash. A client can send another one, as in "GET http://host?query", and a route such as "/*" serves it.
//
// # Requests
//
// Key functions and other functions of a policy get an [http.Request] that is built for them. It has a copy of every
// string, because Fiber's strings change with the next request, even if [ratelimit.Policy.Key] returns one and a store
// keeps it. It has no body: use [Ctx]. Its context has the values of c.Context() and, until the limiter has decided, the
// Locals.
//
//   - URL.Path is c.Path(), the path that Fiber matches. It is escaped, unless fiber.Config.UnescapePath is set.
//   - Fields that a client sends after a chunked body are not in Header, although c.Get returns them: a client could
//     choose its address with one. If a body is chunked, a header that middleware adds is left out, too. Use Locals.
//   - If User-Agent, Content-Type or Host is repeated, fasthttp keeps the last line. Cookies that Fiber and net/http read
//     differently are left out.
//
// # Streams and WebSockets
//
// fasthttp writes a stream, and serves a connection that a handler has taken over, after the handler has returned. The slots
// of a [ratelimit.Concurrency] are held until then.
//
// # Errors
//
// A Settle needs the status that the client gets. So the limiter passes an error of a handler to the application's
// ErrorHandler at once, as Fiber's Logger does. Middleware outside of the limiter does not get the error then.
//
// # What Fiber makes impossible
//
//   - In Use and in a Group no route is known yet: Event.Route is empty, and [ratelimit.Route] has no key, so that the
//     response is 403. Mount Limit on routes. A HEAD that Fiber serves by a GET route has the pattern of the GET.
//   - Nothing notices that a client has left: a request waits up to Policy.MaxWait, and its context does not end. The
//     deadline of Fiber's timeout middleware is obeyed. A request that it has answered is settled with status 408.
//   - Fiber's timeout middleware reads the response while the handler in it may write it: a data race of Fiber, which a
//     limiter in it takes part in. Mount the limiter outside.
//   - A handler that sets the status 200 and no body looks like one that did nothing. With [ratelimit.FailedLogins] it
//     must call ratelimit.SetCost(c.Context(), policy, 0), or c.SendStatus(200).
//   - Response.Bytes of a stream is 0: Fiber writes it in another goroutine, which may end later.
//   - A panic ends the process, unless Fiber's recover middleware is mounted. It is settled in either case.
//   - A request that goes through a limiter twice, as by RestartRouting, is charged twice.
//   - With fiber.Config{DisableHeaderNormalizing: true}, names that middleware has set before the limiter are sent in
//     canonical form.
//   - There is no http.ResponseWriter and no HTTP/2. Requests of App.Test have no address, so no key by RemoteIP.
package fiberratelimit

import (
	"net/http"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures a [Limiter].
type Config struct {
	// Errors returns refusals to Fiber as errors, and the application's ErrorHandler writes the response.
	// The headers are set before. errors.As finds a *fiber.Error with the status 429, 400, 403 or 503, and
	// errors.Is finds the reason, such as [ratelimit.ErrNoKey].
	// Default: Config.Deny and Config.Error of the limiter write the response.
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
//	app.Use("*", limits.Handler()) // with the path, see the package comment
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
	x.flush()
	x.decided(r)
	x.err = x.c.Next()
	x.keepSlot()
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

// patternOf returns the pattern of route, "" if route belongs to Use or to a Group. If Fiber has made a HEAD route of a
// GET route, it returns that of the GET, as http.ServeMux does. Otherwise a HEAD would be a second quota.
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
