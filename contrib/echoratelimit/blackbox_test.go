package echoratelimit_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
)

// A handled is a request, in the words of the list.
type handled struct {
	adaptertest.NetHTTP
	c echo.Context
}

func of(c echo.Context) handled {
	return handled{adaptertest.NetHTTP{W: c.Response(), R: c.Request()}, c}
}

func (h handled) FromContext() (*ratelimit.Decision, bool) { return echoratelimit.FromContext(h.c) }
func (h handled) Query(name string) string                 { return h.c.QueryParam(name) }
func (h handled) Text(status int, body string) error       { return h.c.String(status, body) }
func (h handled) Status(status int) error                  { return h.c.NoContent(status) }
func (h handled) Redirect(to string) error                 { return h.c.Redirect(http.StatusFound, to) }

// build builds an app with echo.
func build(app adaptertest.App) *echo.Echo {
	e := newHeadEcho()
	onError(e, func(c echo.Context, err error) {
		switch {
		case committed(c):
		case app.Errors:
			if app.OnError != nil {
				app.OnError(of(c), statusOf(err), err)
			}
			c.String(statusOf(err), fmt.Sprint("framework ", statusOf(err)))
		case errors.Is(err, errPassword):
			c.String(http.StatusUnauthorized, "try again")
		default:
			defaultHandler(c, err)
		}
	})
	var limits *echoratelimit.Limiter
	limit := func(policies []ratelimit.Policy) []echo.MiddlewareFunc {
		if limits == nil || len(policies) == 0 {
			return nil
		}
		return []echo.MiddlewareFunc{limits.Limit(policies...)}
	}
	use := func(ms []any) {
		for _, m := range ms {
			e.Use(m.(echo.MiddlewareFunc))
		}
	}
	use(app.Outside)
	if app.Limiter != nil {
		limits = echoratelimit.New(app.Limiter, echoratelimit.Config{Errors: app.Errors})
		if app.Handler {
			e.Use(limits.Handler())
		}
	}
	use(app.Inside)
	groups := map[string]*echo.Group{"": e.Group("")}
	for _, route := range app.Routes {
		prefix := ""
		for _, g := range route.Groups {
			outer := groups[prefix]
			if prefix += g.Prefix; groups[prefix] == nil {
				groups[prefix] = outer.Group(g.Prefix, limit(g.Policies)...)
			}
		}
		handler := func(c echo.Context) error { return route.Handler(of(c)) }
		if route.Native != nil {
			handler = route.Native.(func(echo.Context) error)
		}
		groups[prefix].Add(route.Method, route.Path, handler, limit(route.Policies)...)
	}
	return e
}

// returning returns a handler that returns an error.
func returning(err error) any { return func(echo.Context) error { return err } }

// loginWays are the ways to answer a login that handlers of net/http do not have.
var loginWays = []adaptertest.Way{
	{Name: "an HTTPError", Status: 403, Fail: returning(echo.NewHTTPError(http.StatusForbidden, "no"))},
	{Name: "an error of echo", Status: 401, Fail: returning(echo.ErrUnauthorized)},
	{Name: "an error that the error handler knows", Status: 401, Fail: returning(errPassword)},
	{Name: "an error that it finds in another", Status: 401, Fail: returning(fmt.Errorf("login: %w", errPassword))},
	{Name: "an error of another kind", Status: 500, Fail: returning(errors.New("no"))},
	{Name: "JSON", Status: 401,
		Fail:    func(c echo.Context) error { return c.JSON(http.StatusUnauthorized, "no") },
		Succeed: func(c echo.Context) error { return c.JSON(http.StatusOK, "welcome") }},
	{Name: "a handler of net/http", Status: 401,
		Fail: (func(echo.Context) error)(echo.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusUnauthorized)
		}))),
		Succeed: (func(echo.Context) error)(echo.WrapHandler(http.RedirectHandler("/home", http.StatusSeeOther)))},
	{Name: "nothing, and SetCost", Succeed: func(c echo.Context) error {
		ratelimit.SetCost(c.Request().Context(), "login", 0)
		return nil
	}},
	{Name: "an error, with Recover outside", Status: 401, Fail: returning(errPassword), Outside: []any{recovering}},
	{Name: "an error, with Recover inside", Status: 401, Fail: returning(errPassword), Inside: []any{recovering}},
	{Name: "an error, with gzip outside", Status: 401, Fail: returning(errPassword), Outside: []any{middleware.Gzip()}},
	{Name: "an error, with gzip inside", Status: 401, Fail: returning(errPassword), Inside: []any{middleware.Gzip()}},
	{Name: "a panic with an error that the error handler knows", Status: 401, Fail: panicking, Inside: []any{recovering}},
	{Name: "a panic with such an error, with Recover outside", Status: 401, Fail: panicking, Outside: []any{recovering}},
	{Name: "a panic that is returned as an error", Status: 401, Fail: panicking, Inside: []any{unwinding()}},
	{Name: "BasicAuth inside", Status: 401, Fail: func(c echo.Context) error { return hello(c) }, Inside: []any{basicAuth()}},
	{Name: "ContextTimeout inside", Status: 503, Inside: []any{middleware.ContextTimeout(time.Millisecond)},
		Fail: func(c echo.Context) error {
			<-c.Request().Context().Done()
			return c.Request().Context().Err()
		}},
	{Name: "BodyDump inside", Status: 401, Fail: returning(errPassword), Inside: []any{bodyDump()},
		Succeed: func(c echo.Context) error { return c.String(http.StatusOK, "welcome") }},
	{Name: "middleware of net/http inside", Status: 401, Fail: returning(errPassword), Inside: []any{passing},
		Succeed: func(c echo.Context) error { return c.String(http.StatusOK, "welcome") }},
	{Name: "middleware of net/http outside", Status: 401, Fail: returning(errPassword), Outside: []any{passing},
		Succeed: func(c echo.Context) error { return c.String(http.StatusOK, "welcome") }},
}

var (
	panicking = func(echo.Context) error { panic(errPassword) }
	passing   = echo.WrapMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	})
)

func TestBlackBox(t *testing.T) {
	const noMount = "echo has groups, and no mounts"
	const notReached = "echo answers 405 without the middleware of a route"
	f := adaptertest.Framework{
		Serve: func(t testing.TB, app adaptertest.App) string {
			for _, r := range app.Routes {
				for _, g := range r.Groups {
					if g.Mount {
						t.Fatal(noMount)
					}
				}
			}
			return adaptertest.ServeHTTP(t, build(app))
		},
		Path:     adaptertest.Colon,
		Recovery: recovering,
		Gzip:     middleware.Gzip(),
		Logger: func(log func(adaptertest.Context)) any {
			return echo.MiddlewareFunc(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					err := next(c)
					log(of(c))
					return err
				}
			})
		},
		Ways: loginWays,
		Patterns: map[string]string{
			"HEAD of GET":    headOfGet + " /items/:id",
			"405":            "POST /items/:id",
			"made-up method": "/items/:id",
		},
		Lacks: map[string]string{
			"pattern by Handler: a route of a mount":          noMount,
			"pattern by Limit of a group: a route of a mount": noMount,
			"pattern by Limit of a route: a route of a mount": noMount,
			"pattern by Limit of a route: 405":                notReached,
			"pattern by Limit of a route: made-up method":     notReached,
		},
	}
	maps.Copy(f.Lacks, lacks)
	adaptertest.Run(t, f)
}

// The adapter costs at most 200 ns more than the middleware of net/http.
func BenchmarkCost(b *testing.B) {
	adaptertest.Cost(b, func(l *ratelimit.Limiter) func() {
		e := newEcho()
		if l != nil {
			e.Use(echoratelimit.New(l, echoratelimit.Config{}).Handler())
		}
		e.GET("/items/:id", func(echo.Context) error { return nil })
		return adaptertest.Requests(e)
	})
}
