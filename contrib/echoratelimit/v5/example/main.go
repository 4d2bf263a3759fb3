// Code generated from example/main.go of echo v4 by go test -update there; DO NOT EDIT.

// Example is a small API of echo with limits, to try with curl:
//
//	go run ./example
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(`Try:
  curl -i http://%[1]v/hello                       # 5 at once, then one each second
  curl -i http://%[1]v/items/7                     # 3 at once on each route, too
  curl -i -X POST -d password=wrong http://%[1]v/login    # 2 failures in a minute; "secret" costs nothing
`, listener.Addr())
	server := &http.Server{Handler: newAPI(), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

// newAPI returns the API. Buckets are in memory.
func newAPI() *echo.Echo {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerSecond(1).WithBurst(5),
		}},
	}))
	limits := echoratelimit.New(limiter, echoratelimit.Config{})
	login := ratelimit.Policy{
		Name:   "login",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.PerMinute(2),
		Settle: ratelimit.FailedLogins,
	}
	perRoute := ratelimit.Policy{
		Name:  "route",
		Key:   ratelimit.Join(ratelimit.RemoteIP(), ratelimit.Route()),
		Limit: ratelimit.PerSecond(1).WithBurst(3),
	}

	e := echo.New()
	e.Use(middleware.Recover(), limits.Handler())
	e.GET("/hello", func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	items := e.Group("/items", limits.Limit(perRoute))
	items.GET("/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")+"\n") })
	e.POST("/login", func(c *echo.Context) error {
		if c.FormValue("password") != "secret" {
			// Any error counts as a failed login, whatever the error handler makes of it.
			return echo.NewHTTPError(http.StatusUnauthorized, "wrong password")
		}
		return c.String(http.StatusOK, "welcome\n")
	}, limits.Limit(login))
	return e
}
