// Example is a small API of echo with limits, to try with curl:
//
//	go run ./example
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, os.Stdout); err != nil {
		slog.Error("example", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, addr string, out io.Writer) error {
	buckets := memstore.New(memstore.Config{})
	defer buckets.Close()
	e, err := newAPI(buckets)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `Try:
  curl -i http://%[1]v/hello                       # 5 at once, then one each second
  curl -i http://%[1]v/items/7                     # 3 at once on each route, too
  curl -i -X POST -d password=wrong http://%[1]v/login    # 2 failures in a minute; "secret" costs nothing
`, listener.Addr())
	server := &http.Server{Handler: e, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.WithoutCancel(ctx))
	}
}

var errPassword = errors.New("wrong password")

// newAPI returns the API.
func newAPI(buckets *memstore.Store) (*echo.Echo, error) {
	limiter, err := ratelimit.New(ratelimit.Config{
		Store: buckets,
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerSecond(1).WithBurst(5),
		}},
	})
	if err != nil {
		return nil, err
	}
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
	e.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	items := e.Group("/items", limits.Limit(perRoute))
	items.GET("/:id", func(c echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")+"\n") })
	e.POST("/login", func(c echo.Context) error {
		if c.FormValue("password") != "secret" {
			// Any error counts as a failed login, whatever the error handler makes of it.
			return echo.NewHTTPError(http.StatusUnauthorized, errPassword.Error())
		}
		return c.String(http.StatusOK, "welcome\n")
	}, limits.Limit(login))
	return e, nil
}
