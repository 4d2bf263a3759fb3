// Code generated from refusal_test.go of echo v4 by go test -update there; DO NOT EDIT.

package echoratelimit_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

// saving returns middleware that saves the error of the next handler.
func saving(to *error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			*to = next(c)
			return *to
		}
	}
}

// A refusal reaches middleware and the error handler as an error with its own status, and only with Errors. The reason
// may be an error of echo with another status.
func TestRefusals(t *testing.T) {
	reason := echo.NewHTTPError(http.StatusOK, "not the key's to say")
	policy := anyone("p", ratelimit.PerHour(1))
	policy.Key = func(*http.Request) (string, error) { return "", reason }
	for _, byEcho := range []bool{false, true} {
		var handled, outside error
		e := newEcho()
		onError(e, func(c *echo.Context, err error) {
			handled = err
			defaultHandler(c, err)
		})
		limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{policy}}, echoratelimit.Config{Errors: byEcho})
		e.Use(saving(&outside), limits.Handler())
		e.GET("/", hello)
		r := send(e, "GET", "/")
		if r.status != 503 || handled != outside || (handled != nil) != byEcho {
			t.Errorf("errors %t: status %d, the error handler got %v, middleware %v", byEcho, r.status, handled, outside)
		}
		if !byEcho {
			continue
		}
		if statusOf(handled) != 503 || !errors.Is(handled, reason) || strings.TrimSpace(r.body) != `{"message":"Service Unavailable"}` {
			t.Errorf("error %v, body %q", handled, r.body)
		}
		if r := send(e, "HEAD", "/"); r.body != "" {
			t.Errorf("a HEAD has the body %q", r.body)
		}
	}
}

// An error reaches middleware around the limiter also if it is answered already: a transaction must not be committed.
func TestMiddlewareAroundTheLimiterSeesErrors(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	for _, policy := range []ratelimit.Policy{anyone("kept", ratelimit.PerHour(10)), failures()} {
		e := loginEcho()
		var seen error
		e.Use(saving(&seen))
		e.GET("/", func(c *echo.Context) error { return errPassword }, limits.Limit(policy))
		r := send(e, "GET", "/")
		if r.status != 401 || !errors.Is(seen, errPassword) || strings.Count(r.body, "try again") != 1 {
			t.Errorf("policy %s: status %d, error %v, body %q", policy.Name, r.status, seen, r.body)
		}
	}
}

// Only a policy with a Settle must know the status when the handler has returned. Then middleware that replaces errors
// comes too late around the limiter.
func TestMiddlewareThatReplacesErrors(t *testing.T) {
	replacing := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if next(c) == nil {
				return nil
			}
			return echo.NewHTTPError(http.StatusTeapot, "replaced")
		}
	}
	settled, got := responses()
	for name, tt := range map[string]struct {
		policy ratelimit.Policy
		inside bool
		status int
	}{
		"around a policy":              {anyone("p", ratelimit.PerHour(10)), false, 418},
		"around a policy that settles": {settled, false, 500},
		"inside of it":                 {settled, true, 418},
	} {
		limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
		ms := []echo.MiddlewareFunc{replacing, limits.Limit(tt.policy)}
		if tt.inside {
			ms[0], ms[1] = ms[1], ms[0]
		}
		e := newEcho()
		e.GET("/", func(c *echo.Context) error { return errors.New("?") }, ms...)
		wantStatuses(t, e, "GET", "/", tt.status)
		if tt.policy.Settle != nil && got.Status != tt.status {
			t.Errorf("%s: settled by %+v, want status %d", name, *got, tt.status)
		}
	}
}

// echo calls its error handler again for an error that middleware has passed to it, and some do not look whether the
// response is committed. The client gets one body.
func TestAnErrorHandlerThatAnswersTwice(t *testing.T) {
	for name, around := range map[string][]echo.MiddlewareFunc{
		"plain":        nil,
		"gzip":         {middleware.Gzip()},
		"Recover":      {recovering},
		"net/http's":   {passing},
		"two limiters": {newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{failures()}}, echoratelimit.Config{}).Handler()},
	} {
		calls := 0
		e := newEcho()
		onError(e, func(c *echo.Context, err error) {
			calls++
			c.JSON(http.StatusUnauthorized, "answered")
		})
		limit := newLimits(t, ratelimit.Config{}, echoratelimit.Config{}).Limit(failures())
		e.GET("/", func(c *echo.Context) error { return errPassword }, append(around, limit)...)
		for _, status := range []int{401, 401, 429} {
			if r := send(e, "GET", "/"); r.status != status || status == 401 && r.body != "\"answered\"\n" {
				t.Errorf("%s: status %d, want %d; body %q", name, r.status, status, r.body)
			}
		}
		if calls != 4 {
			t.Errorf("%s: the error handler was called %d times, want twice for each error", name, calls)
		}
	}
}

// What was not answered is not complete.
func TestAnErrorHandlerThatAnswersLater(t *testing.T) {
	e := newEcho()
	called := false
	onError(e, func(c *echo.Context, err error) {
		if called {
			c.String(http.StatusUnauthorized, "answered")
		}
		called = true
	})
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e.GET("/", func(c *echo.Context) error { return errPassword }, limits.Limit(failures()))
	if r := send(e, "GET", "/"); r.status != 401 || r.body != "answered" {
		t.Errorf("status %d, body %q", r.status, r.body)
	}
}

// An error handler that fails is a panic of the handler.
func TestAnErrorHandlerThatPanics(t *testing.T) {
	policy, got := responses()
	e := newEcho()
	onError(e, func(*echo.Context, error) { panic("no") })
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e.GET("/", func(c *echo.Context) error { return errPassword }, limits.Limit(policy))
	if r := send(e, "GET", "/"); r.status != 0 || !got.Panicked || got.Written {
		t.Errorf("status %d, settled by %+v", r.status, *got)
	}
}

// echo.WrapMiddleware is the way that does not work. It shows what this package is for.
func TestWrapMiddlewareDoesNotSeeErrors(t *testing.T) {
	policy, got := responses()
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := loginEcho()
	failed := func(c *echo.Context) error { return errPassword }
	e.GET("/wrapped", failed, echo.WrapMiddleware(limits.Limiter.Limit(policy)))
	e.GET("/adapted", failed, limits.Limit(policy))
	for path, want := range map[string]int{"/wrapped": 200, "/adapted": 401} {
		wantStatuses(t, e, "GET", path, 401)
		if got.Status != want {
			t.Errorf("%s: settled by %+v, want status %d", path, *got, want)
		}
	}
}
