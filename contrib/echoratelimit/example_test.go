package echoratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit"
)

func Example() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()),
			Limit: ratelimit.PerMinute(60).WithBurst(10),
		}},
	}))
	defer limiter.Close()
	limits := echoratelimit.New(limiter, echoratelimit.Config{})
	login := ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(2), Settle: ratelimit.FailedLogins}

	e := echo.New()
	e.Use(limits.Handler())
	e.POST("/login", func(c echo.Context) error {
		if c.QueryParam("password") != "secret" {
			return echo.ErrUnauthorized
		}
		return c.NoContent(http.StatusNoContent)
	}, limits.Limit(login))

	for _, password := range []string{"secret", "wrong", "secret", "wrong", "secret"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("POST", "/login?password="+password, nil))
		fmt.Println(password, w.Code)
	}
	// Output:
	// secret 204
	// wrong 401
	// secret 204
	// wrong 401
	// secret 429
}

// With Errors, the error handler of the application answers denials.
func ExampleConfig() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)}},
	}))
	defer limiter.Close()
	limits := echoratelimit.New(limiter, echoratelimit.Config{Errors: true})

	e := echo.New()
	e.Use(limits.Handler())
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	// Output:
	// 200  hello
	// 429 3600 {"message":"Too Many Requests"}
}

type memberKey struct{}

// Values of echo's context, such as those of an authentication, and path parameters are not in the request, which is
// all that key functions see. Middleware between them and the limiter copies what a key needs.
func ExampleLimiter_Limit_keys() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	limits := echoratelimit.New(limiter, echoratelimit.Config{})
	perMember := ratelimit.Policy{
		Name: "member",
		Key: ratelimit.ContextKey("member", func(ctx context.Context) (string, bool) {
			member, ok := ctx.Value(memberKey{}).(string)
			return member, ok
		}),
		Limit: ratelimit.PerHour(1),
	}
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("member", c.QueryParam("token")) // as an authentication does
			return next(c)
		}
	}
	tellMember := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx := context.WithValue(c.Request().Context(), memberKey{}, c.Get("member"))
			c.SetRequest(c.Request().WithContext(ctx))
			return next(c)
		}
	}

	e := echo.New()
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") },
		authenticate, tellMember, limits.Limit(perMember))

	for _, member := range []string{"alice", "bob", "alice"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/?token="+member, nil))
		fmt.Println(member, w.Code)
	}
	// Output:
	// alice 200
	// bob 200
	// alice 429
}
