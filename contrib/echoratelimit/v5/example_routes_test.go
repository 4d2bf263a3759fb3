// Code generated from example_routes_test.go of echo v4 by go test -update there; DO NOT EDIT.

package echoratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

// Limits for all requests, for one route and for a group.
func ExampleLimiter_Limit() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()
	login := ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Settle: ratelimit.FailedLogins,
		Limit: ratelimit.Every(15 * time.Minute).WithBurst(1)}
	perRoute := ratelimit.Policy{Name: "route", Key: ratelimit.Join(ratelimit.Route(), ratelimit.RemoteIP()), Limit: ratelimit.PerMinute(2)}

	limits := echoratelimit.New(limiter, echoratelimit.Config{})
	e := echo.New()
	e.Use(limits.Handler())                            // the policies of Config, also for 404 and 405
	e.POST("/login", signIn, limits.Limit(login))      // one route
	items := e.Group("/items", limits.Limit(perRoute)) // a group
	items.GET("/:id", func(c *echo.Context) error {
		d, _ := echoratelimit.FromContext(c)
		return c.JSON(http.StatusOK, d.Tightest().Remaining)
	})

	for _, target := range []string{"POST /login", "POST /login", "GET /items/5", "GET /items/6", "GET /items/7"} {
		var method, path string
		fmt.Sscan(target, &method, &path)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		fmt.Println(target, w.Code)
	}
	// Output:
	// POST /login 401
	// POST /login 429
	// GET /items/5 200
	// GET /items/6 200
	// GET /items/7 429
}

func signIn(*echo.Context) error { return echo.ErrUnauthorized }
