// Code generated from echoratelimit_test.go of echo v4 by go test -update there; DO NOT EDIT.

package echoratelimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

func TestNewNeedsALimiter(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "limiter: must not be nil") {
			t.Errorf("panic %q", got)
		}
	}()
	echoratelimit.New(nil, echoratelimit.Config{})
}

// errPassword is an error that only the error handler of an application knows.
var errPassword = errors.New("wrong password")

// loginEcho returns an echo whose error handler answers errPassword with 401.
func loginEcho() *echo.Echo {
	e := newEcho()
	onError(e, func(c *echo.Context, err error) {
		if errors.Is(err, errPassword) && !committed(c) {
			err = echo.NewHTTPError(http.StatusUnauthorized, "try again")
		}
		defaultHandler(c, err)
	})
	return e
}

var recovering = middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})

// The status counts that the client sees, whatever way it takes.
func TestASettleSeesTheFinalStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		outside, inside echo.MiddlewareFunc
		handler         echo.HandlerFunc
		status          int // for the client, 0 if the connection is closed
		want            ratelimit.Response
	}{
		"a status":            {handler: func(c *echo.Context) error { return c.NoContent(401) }, status: 401, want: ratelimit.Response{Status: 401, Written: true}},
		"a body":              {handler: func(c *echo.Context) error { return c.String(401, "no") }, status: 401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 2}},
		"JSON":                {handler: func(c *echo.Context) error { return c.JSON(200, 1) }, status: 200, want: ratelimit.Response{Status: 200, Written: true, Bytes: 2}},
		"a stream":            {handler: func(c *echo.Context) error { return c.Stream(200, "a/b", strings.NewReader("12345")) }, status: 200, want: ratelimit.Response{Status: 200, Written: true, Bytes: 5}},
		"a redirect":          {handler: func(c *echo.Context) error { return c.Redirect(302, "/") }, status: 302, want: ratelimit.Response{Status: 302, Written: true}},
		"nothing":             {handler: func(c *echo.Context) error { return nil }, status: 200, want: ratelimit.Response{Status: 200}},
		"an HTTPError":        {handler: func(c *echo.Context) error { return echo.NewHTTPError(401, "no") }, status: 401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 17}},
		"an error of echo":    {handler: func(c *echo.Context) error { return echo.ErrUnauthorized }, status: 401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 27}},
		"another error":       {handler: func(c *echo.Context) error { return errors.New("?") }, status: 500, want: ratelimit.Response{Status: 500, Written: true, Bytes: 36}},
		"a mapped error":      {handler: func(c *echo.Context) error { return errPassword }, status: 401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 24}},
		"an error after it":   {handler: func(c *echo.Context) error { return errors.Join(c.String(200, "ok"), errPassword) }, status: 200, want: ratelimit.Response{Status: 200, Written: true, Bytes: 2}},
		"an error, flushed":   {handler: func(c *echo.Context) error { flush(c); return errPassword }, status: 200, want: ratelimit.Response{Status: 200}},
		"a panic":             {handler: func(c *echo.Context) error { panic("no") }, want: ratelimit.Response{Panicked: true}},
		"an abort":            {handler: func(c *echo.Context) error { panic(http.ErrAbortHandler) }, want: ratelimit.Response{Panicked: true}},
		"an abort, recovered": {inside: recovering, handler: func(c *echo.Context) error { panic(http.ErrAbortHandler) }, want: ratelimit.Response{Panicked: true}},
		"recovered inside":    {inside: recovering, handler: func(c *echo.Context) error { panic(errPassword) }, status: 401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 24}},
		"recovered outside":   {outside: recovering, handler: func(c *echo.Context) error { panic(errPassword) }, status: 401, want: ratelimit.Response{Panicked: true}},
		"a panic as an error": {inside: unwinding(), handler: func(c *echo.Context) error { panic(errPassword) }, status: 401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 24}},
		"middleware inside":   {inside: basicAuth(), handler: hello, status: 401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 27}},
	} {
		t.Run(name, func(t *testing.T) {
			e := loginEcho()
			policy, got := responses()
			limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
			for _, m := range []echo.MiddlewareFunc{tt.outside, limits.Limit(policy), tt.inside} {
				if m != nil {
					e.Use(m)
				}
			}
			e.GET("/", tt.handler)
			if r := serve(t, e).send("GET", "/"); r.status != tt.status {
				t.Errorf("status %d, want %d: %s", r.status, tt.status, r.body)
			}
			tt.want.Cost = 1
			if r := next(t, got); r != tt.want {
				t.Errorf("settled by %+v, want %+v", r, tt.want)
			}
		})
	}
}

func flush(c *echo.Context) {
	if err := http.NewResponseController(c.Response()).Flush(); err != nil {
		panic(err)
	}
}

func hello(c *echo.Context) error { return c.String(http.StatusOK, "hello") }
