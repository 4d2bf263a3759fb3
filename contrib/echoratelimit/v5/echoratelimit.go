// Code generated from echoratelimit.go of echo v4 by go test -update there; DO NOT EDIT.

// Package echoratelimit limits requests of echo with a [ratelimit.Limiter]. Module contrib/echoratelimit is for echo v4,
// and contrib/echoratelimit/v5 for echo v5.
//
//	limits := echoratelimit.New(limiter, echoratelimit.Config{})
//	e.Use(limits.Handler())
//	e.POST("/login", signIn, limits.Limit(login))
//
// Programs to try are in https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/echoratelimit/example for v4, and in
// https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/echoratelimit/v5/example for v5.
//
// [ratelimit.Route] and Event.Route have the path of the route, such as "GET /users/:id", or "unmatched". A route of Any or
// of RouteNotFound is one key for each of the nine methods of net/http, and one for all others. A Settle such as
// [ratelimit.FailedLogins] gets the status that the client gets, also for an error that a handler returns.
//
// Do not use echo.WrapMiddleware to mount a limiter: it does not see the responses of Echo.HTTPErrorHandler.
//
// # What echo makes impossible
//
//   - In Echo.Pre no route is known. Then Route finds no key, and requests are answered 403.
//   - echo calls Echo.HTTPErrorHandler after all middleware. For a policy with a Settle, the limiter calls it for an
//     error that has no response yet, and returns the error. So middleware must be inside the limiter if it replaces
//     errors, or drops what was written before an error, as Timeout of echo v4 does.
//   - echo then calls Echo.HTTPErrorHandler again. What it writes then is dropped. If it logs errors, it should return
//     first if the response is committed, as the default does.
//   - echo answers 405, and 404 outside of groups, without the middleware of routes and groups. Only Echo.Use sees these
//     requests.
//   - echo has no mounts. A second echo behind echo.WrapHandler is one route of the first, and has its own inside.
//   - A key function gets the request, without path parameters and values of *echo.Context. Copy what it needs to the
//     request in middleware outside the limiter: see the example of Limit.
package echoratelimit

import (
	"errors"
	"net"
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
	cfg Config
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
		r.Pattern = pattern(method, path)
	}
	x := &call{answer: answer{ResponseWriter: c.Response()}, c: c, next: next, errors: m.cfg.Errors}
	m.handler.ServeHTTP((*responder)(x), r)
	if r.Pattern == "" {
		r.Pattern = around
	}
	return x.err
}

// unmatched is the path of all requests that match no route, as in a key of Route under chi.
const unmatched = "unmatched"

// pattern returns the pattern of a route, such as "GET /users/:id". A method that net/http does not name is no part of
// it, because clients make those up.
func pattern(method, path string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch,
		http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		if path != unmatched {
			return method + " " + path
		}
	}
	return path
}

// enter passes a request that the limiter has let through to the next handler of echo.
func enter(w http.ResponseWriter, r *http.Request) {
	x := (*call)(w.(*responder))
	x.show(r)
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

// show makes r the request of echo, for FromContext. Tracing reports its pattern.
func (x *call) show(r *http.Request) {
	if r.Pattern == unmatched {
		r.Pattern = ""
	}
	x.c.SetRequest(r)
}

// A responder is a call as the limiter sees it. The limiter answers by the response of echo.
type responder call

var _ ratelimit.Responder = (*responder)(nil)

var errDenied = errors.New("request denied")

// Refuse implements [ratelimit.Responder].
func (x *responder) Refuse(r *http.Request, status int, err error) bool {
	(*call)(x).show(r)
	if !x.errors {
		return false
	}
	if err == nil {
		err = errDenied
	}
	x.err = refusal(status, err)
	return true
}

// WrapConn keeps wrap for a connection that handlers take over: see [ratelimit.Responder].
func (x *responder) WrapConn(wrap func(net.Conn) net.Conn) { x.wrapConn = wrap }

// Response implements [ratelimit.Responder]. echo calls its error handler after all middleware. An error that is not
// answered yet is answered here, because only then its status is known. echo's call must not add a second body.
func (x *responder) Response() ratelimit.Response {
	if x.err != nil && x.status == 0 && !x.hijacked {
		handle(x.c, x.err)
		x.complete = x.status != 0
	}
	return ratelimit.Response{Status: x.status, Written: x.written, Bytes: x.bytes, Hijacked: x.hijacked}
}
