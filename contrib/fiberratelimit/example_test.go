package fiberratelimit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/fiberratelimit"
)

func newRatelimit(policies ...ratelimit.Policy) *ratelimit.Limiter {
	return ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: policies, Timeout: time.Minute}))
}

// test sends a request over TCP. With app.Test, requests have no address.
func test(app *fiber.App, method, path string, header ...string) *http.Response {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	app.Handler()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = app.Server().ServeConn(conn)
		}
	}()
	r, err := http.NewRequest(method, "http://"+listener.Addr().String()+path, nil)
	if err != nil {
		panic(err)
	}
	r.Close = true
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		panic(err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response
}

func Example() {
	limiter := newRatelimit(ratelimit.Policy{
		Name:  "api",
		Key:   ratelimit.RemoteIP(),
		Limit: ratelimit.PerMinute(60).WithBurst(2),
	})
	defer limiter.Close()
	limits := fiberratelimit.New(limiter, fiberratelimit.Config{})

	app := fiber.New()
	app.Use("*", limits.Handler())
	app.Get("/items/:id", func(c fiber.Ctx) error {
		d, _ := fiberratelimit.FromContext(c)
		return c.SendString(fmt.Sprint(d.Results[0].Remaining, " left"))
	})

	for range 3 {
		response := test(app, "GET", "/items/5")
		fmt.Printf("%d, %s left\n", response.StatusCode, response.Header.Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200, 1 left
	// 200, 0 left
	// 429, 0 left
}

// Only failed logins count. The status of a returned error is known, too.
func ExampleLimiter_Limit() {
	limiter := newRatelimit(ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)})
	defer limiter.Close()
	login := ratelimit.Policy{
		Name:   "login",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.Every(15 * time.Minute).WithBurst(2),
		Settle: ratelimit.FailedLogins,
	}
	signIn := func(c fiber.Ctx) error {
		if c.Query("password") != "secret" {
			return fiber.ErrUnauthorized
		}
		return c.SendString("welcome")
	}

	limits := fiberratelimit.New(limiter, fiberratelimit.Config{})
	app := fiber.New()
	app.Use("*", limits.Handler())
	app.Post("/login", limits.Limit(login), signIn)

	for _, password := range []string{"secret", "secret", "secret", "1", "2", "3"} {
		fmt.Println(test(app, "POST", "/login?password="+password).StatusCode)
	}
	// Output:
	// 200
	// 200
	// 200
	// 401
	// 401
	// 429
}

// The application's ErrorHandler writes the responses to refused requests.
func ExampleConfig() {
	limiter := newRatelimit(ratelimit.Policy{Name: "api", Key: ratelimit.Header("X-Api-Key"), Limit: ratelimit.PerHour(1)})
	defer limiter.Close()
	limits := fiberratelimit.New(limiter, fiberratelimit.Config{Errors: true})

	app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		var status *fiber.Error
		switch {
		case errors.Is(err, ratelimit.ErrNoKey):
			return c.Status(fiber.StatusUnauthorized).SendString("send an X-Api-Key")
		case errors.As(err, &status) && status.Code == fiber.StatusTooManyRequests:
			d, _ := fiberratelimit.FromContext(c)
			return c.Status(status.Code).SendString("denied by " + strings.Join(d.Denied(), ", "))
		}
		return fiber.DefaultErrorHandler(c, err)
	}})
	app.Use("*", limits.Handler())
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("ok") })

	for _, header := range [][]string{nil, {"X-Api-Key", "k"}, {"X-Api-Key", "k"}} {
		response := test(app, "GET", "/", header...)
		body, _ := io.ReadAll(response.Body)
		fmt.Println(response.StatusCode, string(body))
	}
	// Output:
	// 401 send an X-Api-Key
	// 200 ok
	// 429 denied by api
}

// A key function finds what middleware of Fiber has put into the Locals.
func ExampleCtx() {
	key := func(r *http.Request) (string, error) {
		c, _ := fiberratelimit.Ctx(r)
		member, ok := c.Locals("member").(string)
		if !ok {
			return "", ratelimit.ErrNoKey
		}
		return "member:" + member, nil
	}
	limiter := newRatelimit(ratelimit.Policy{Name: "api", Key: key, Limit: ratelimit.PerHour(1)})
	defer limiter.Close()
	limits := fiberratelimit.New(limiter, fiberratelimit.Config{})

	app := fiber.New()
	app.Use("*", func(c fiber.Ctx) error { // authentication
		c.Locals("member", strings.Clone(c.Query("member")))
		return c.Next()
	})
	app.Use("*", limits.Handler())
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("ok") })

	for _, member := range []string{"ann", "bob", "ann"} {
		fmt.Println(member, test(app, "GET", "/?member="+member).StatusCode)
	}
	// Output:
	// ann 200
	// bob 200
	// ann 429
}
