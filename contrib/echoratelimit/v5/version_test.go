package echoratelimit_test

import (
	"cmp"
	"io"
	"log"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

var quiet = log.New(io.Discard, "", 0)

// newEcho returns an echo that logs nothing.
func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger = silent
	return e
}

// onError sets the error handler of e.
func onError(e *echo.Echo, f func(c *echo.Context, err error)) { e.HTTPErrorHandler = f }

var byDefault = echo.DefaultHTTPErrorHandler(false)

// defaultHandler is the error handler of an echo that sets none.
func defaultHandler(c *echo.Context, err error) { byDefault(c, err) }

// committed reports whether c is answered.
func committed(c *echo.Context) bool {
	response, err := echo.UnwrapResponse(c.Response())
	return err == nil && response.Committed
}

// statusOf returns the status of an error of echo.
func statusOf(err error) int { return cmp.Or(echo.StatusCode(err), http.StatusInternalServerError) }

// headOfGet is the method in the pattern of a HEAD for a path that has a GET.
const headOfGet = "GET"

// newHeadEcho returns an echo whose GET routes answer HEAD, if it can.
func newHeadEcho() *echo.Echo {
	e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
	e.Logger = silent
	return e
}

// unwinding is a Recover that returns the panic as an error.
func unwinding() echo.MiddlewareFunc { return recovering }

// basicAuth is middleware that answers each request with 401.
func basicAuth() echo.MiddlewareFunc {
	return middleware.BasicAuth(func(*echo.Context, string, string) (bool, error) { return false, nil })
}

// literalColon is the pattern of the route "/a\\:b".
const literalColon = "/a\\:b"

// The writer for a HEAD of a GET route keeps the status back until the route's middleware has returned.
func TestAHeadOfAGetRouteIsSettledByItsStatus(t *testing.T) {
	for name, handler := range map[string]echo.HandlerFunc{
		"a status": func(c *echo.Context) error { return c.NoContent(http.StatusUnauthorized) },
		"a body":   func(c *echo.Context) error { return c.String(http.StatusUnauthorized, "no") },
		"an error": func(c *echo.Context) error { return errPassword },
	} {
		t.Run(name, func(t *testing.T) {
			for _, use := range []bool{false, true} {
				limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
				e := newHeadEcho()
				onError(e, loginEcho().HTTPErrorHandler)
				if use {
					e.Use(limits.Limit(failures()))
					e.GET("/login", handler)
				} else {
					e.GET("/login", handler, limits.Limit(failures()))
				}
				wantStatuses(t, e, "HEAD", "/login", 401, 401, 429)
			}
		})
	}
}

// bodyDump is middleware that copies bodies.
func bodyDump() echo.MiddlewareFunc {
	return middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {})
}

// lacks are what this version of echo makes impossible, and the other does not.
var lacks = map[string]string{}

// The limiter leaves echo's response in its place, for handlers that look for it.
func TestTheResponseIsThatOfEcho(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := newEcho()
	e.GET("/", func(c *echo.Context) error {
		_, ok := c.Response().(*echo.Response)
		return c.JSON(http.StatusOK, ok)
	}, limits.Limit(failures()))
	if r := send(e, "GET", "/"); r.body != "true\n" {
		t.Errorf("%q", r.body)
	}
}
