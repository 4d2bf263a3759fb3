package echoratelimit_test

import (
	"io"
	"log"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit"
)

var quiet = log.New(io.Discard, "", 0)

// newEcho returns an echo that logs nothing.
func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.StdLogger = quiet
	return e
}

// onError sets the error handler of e.
func onError(e *echo.Echo, f func(c echo.Context, err error)) {
	e.HTTPErrorHandler = func(err error, c echo.Context) { f(c, err) }
}

// defaultHandler is the error handler of an echo that sets none.
func defaultHandler(c echo.Context, err error) { c.Echo().DefaultHTTPErrorHandler(err, c) }

// committed reports whether c is answered.
func committed(c echo.Context) bool { return c.Response().Committed }

// statusOf returns the status of an error of echo.
func statusOf(err error) int {
	if he, ok := err.(*echo.HTTPError); ok {
		return he.Code
	}
	return http.StatusInternalServerError
}

// headOfGet is the method in the pattern of a HEAD for a path that has a GET.
const headOfGet = "HEAD"

// newHeadEcho returns an echo whose GET routes answer HEAD, if it can.
func newHeadEcho() *echo.Echo { return newEcho() }

// unwinding is a Recover that returns the panic as an error.
func unwinding() echo.MiddlewareFunc {
	return middleware.RecoverWithConfig(middleware.RecoverConfig{DisableErrorHandler: true, DisablePrintStack: true})
}

// basicAuth is middleware that answers each request with 401.
func basicAuth() echo.MiddlewareFunc {
	return middleware.BasicAuth(func(string, string, echo.Context) (bool, error) { return false, nil })
}

// literalColon is the pattern of the route "/a\\:b".
const literalColon = "/a\\:b"

// bodyDump is middleware that copies bodies.
func bodyDump() echo.MiddlewareFunc {
	return middleware.BodyDump(func(echo.Context, []byte, []byte) {})
}

// lacks are what this version of echo makes impossible, and the other does not.
var lacks = map[string]string{"pattern by Limit of a route: HEAD of GET": "echo answers 405 without the middleware of a route"}

// A router for a host has its own routes.
func TestNoRouteInPreForAHost(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perRoute(10)}}, echoratelimit.Config{})
	e := newEcho()
	e.Pre(limits.Handler())
	e.Host("host.test").GET("/", hello)
	for host, want := range map[string]int{"host.test": http.StatusForbidden, "other.test": http.StatusNotFound} {
		wantStatuses(t, e, "GET", "http://"+host+"/", want)
	}
}

// echo reuses its contexts. One that has matched a route before does not make a path known.
func TestAnUnknownPathAfterAKnownOne(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{perRoute(1000)}}, echoratelimit.Config{})
	e := newEcho()
	e.Use(limits.Handler())
	e.GET("/users/:id", hello)
	for range 50 { // the race detector makes a pool forget some
		var used []echo.Context
		for range 3 {
			c := e.AcquireContext()
			e.Router().Find("GET", "/users/7", c)
			used = append(used, c)
		}
		for _, c := range used {
			e.ReleaseContext(c)
		}
		wantStatuses(t, e, "GET", "/unknown", http.StatusNotFound)
	}
}
