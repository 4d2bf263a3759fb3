// Package echoratelimit limits requests of echo with a [ratelimit.Limiter]. Module contrib/echoratelimit is for echo v4,
// and contrib/echoratelimit/v5 for echo v5.
//
//	limits := echoratelimit.New(limiter, echoratelimit.Config{})
//	e.Use(limits.Handler())
//	e.POST("/login", signIn, limits.Limit(login))
//
// Everything of package ratelimit works as under net/http. These are different:
//
//   - [ratelimit.Route] is the method and the path of the route, such as "GET /users/:id". Requests that match no route
//     share the key "route:unmatched". In Echo.Pre no route is known, and the answer is 403.
//   - A policy with a Settle, such as [ratelimit.FailedLogins], must know the status when the handler has returned. So
//     the limiter passes an error of the handler to Echo.HTTPErrorHandler, and returns it. Middleware that replaces
//     errors must be mounted inside the limiter.
//   - echo then calls Echo.HTTPErrorHandler for that error again. A handler of your own must return if the response is
//     committed, as the default does. Otherwise it writes a second body.
//   - Key functions see the request. They do not see path parameters and values of *echo.Context. Copy these to the
//     request's context before: see the example of Limit.
//   - Do not mount the limiter with echo.WrapMiddleware. It does not see what the error handler answers.
package echoratelimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures a [Limiter].
type Config struct {
	// Errors passes refusals to Echo.HTTPErrorHandler, as an *echo.HTTPError with status 429, 400, 403, 503,
	// or 499 for a client that has left. The rate limit headers and Retry-After are set before. Default: the
	// Deny and Error of [ratelimit.Config] answer.
	Errors bool
}

// A Limiter is a [ratelimit.Limiter] whose Handler and Limit are middleware of echo. Make it with [New].
type Limiter struct {
	*ratelimit.Limiter
	cfg      Config
	patterns patterns
}

// New returns a [Limiter] for echo. It panics if limiter is nil.
func New(limiter *ratelimit.Limiter, cfg Config) *Limiter {
	if limiter == nil {
		panic("echoratelimit: New: limiter: must not be nil")
	}
	return &Limiter{Limiter: limiter, cfg: cfg}
}

// Handler returns middleware that enforces the policies of [ratelimit.Config]. Mount it with Echo.Use or Group.Use. It
// panics if there are none.
func (l *Limiter) Handler() echo.MiddlewareFunc {
	return l.middleware(l.Limiter.Handler(http.HandlerFunc(enter)))
}

// Limit returns middleware that enforces policies, for a route or a group:
//
//	e.POST("/login", signIn, limits.Limit(login))
//
// It panics on a malformed policy, with an error that names every wrong field.
func (l *Limiter) Limit(policies ...ratelimit.Policy) echo.MiddlewareFunc {
	return l.middleware(l.Limiter.Limit(policies...)(http.HandlerFunc(enter)))
}

// FromContext returns the decision about the request of c. It is as [ratelimit.FromContext] of the request's context,
// and works also in middleware around the limiter after next has returned, and in Echo.HTTPErrorHandler.
func FromContext(c *echo.Context) (*ratelimit.Decision, bool) {
	return ratelimit.FromContext(c.Request().Context())
}

// middleware returns h, which calls enter for requests that go on, as middleware of echo.
func (l *Limiter) middleware(h http.Handler) echo.MiddlewareFunc {
	m := &mount{Limiter: l, handler: h}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		// echo v4 comes here for each request. So this function captures little.
		return func(c *echo.Context) error { return m.serve(c, next) }
	}
}

// A mount is a place where the limiter is mounted.
type mount struct {
	*Limiter
	handler http.Handler
}

func (m *mount) serve(c *echo.Context, next echo.HandlerFunc) error {
	r := c.Request()
	around := r.Pattern // of a router around echo
	method, path := route(c, r)
	if path != "" {
		r.Pattern = m.patterns.of(method, path)
	}
	x := &call{answer: answer{ResponseWriter: c.Response()}, c: c, next: next, errors: m.cfg.Errors}
	m.handler.ServeHTTP((*responder)(x), r)
	if path == unmatched && (r.Pattern == unmatched || r.Pattern == "") {
		r.Pattern = around
	}
	return x.err
}

// enter passes a request that the limiter has let through to the next handler of echo.
func enter(w http.ResponseWriter, r *http.Request) {
	x := (*call)(w.(*responder))
	if r.Pattern == unmatched {
		r.Pattern = "" // tracing reports patterns
	}
	x.c.SetRequest(r)
	x.ResponseWriter = observe(x.c, &x.answer)
	x.err = x.next(x.c)
}

// A call is a request in the middleware.
type call struct {
	answer
	c      *echo.Context
	next   echo.HandlerFunc
	err    error // of next, or the refusal
	errors bool
}

// A responder is a call as the limiter sees it. The limiter answers by the response of echo.
type responder call

var _ ratelimit.Responder = (*responder)(nil)

var errDenied = errors.New("request denied")

// Refuse implements [ratelimit.Responder].
func (x *responder) Refuse(r *http.Request, status int, err error) bool {
	x.c.SetRequest(r) // for FromContext
	if !x.errors {
		return false
	}
	if err == nil {
		err = errDenied
	}
	x.err = refusal(status, fmt.Errorf("rate limit: %w", err)) // echo v4 would answer an *echo.HTTPError inside instead
	return true
}

// Response implements [ratelimit.Responder]. echo calls its error handler after all middleware. An error that is not
// answered yet is answered here, because only then its status is known.
func (x *responder) Response() ratelimit.Response {
	if x.err != nil && x.status == 0 && !x.hijacked {
		handle(x.c, x.err)
	}
	return ratelimit.Response{Status: x.status, Written: x.written, Bytes: x.bytes, Hijacked: x.hijacked}
}
