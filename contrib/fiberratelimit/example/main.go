// Example is an application of Fiber with a limit for each client, and a stricter one for failed logins.
//
//	go run ./example
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/fiberratelimit"
)

func main() {
	address := flag.String("addr", "127.0.0.1:8080", "the address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("for i in 1 2 3 4 5 6; do curl -i -d password=wrong http://%s/login; done\n", listener.Addr())
	log.Fatal(newApp().Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}))
}

func newApp() *fiber.App {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{ // in memory
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerMinute(60).WithBurst(20),
		}},
	}))
	limits := fiberratelimit.New(limiter, fiberratelimit.Config{})
	login := ratelimit.Policy{
		Name:   "login",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.Every(15 * time.Minute).WithBurst(5),
		Settle: ratelimit.FailedLogins,
	}

	app := fiber.New()
	app.Use("*", limits.Handler())
	app.Get("/items/:id", func(c fiber.Ctx) error {
		return c.SendString("item " + c.Params("id") + "\n")
	})
	app.Post("/login", limits.Limit(login), func(c fiber.Ctx) error {
		if c.FormValue("password") != "secret" {
			return fiber.NewError(fiber.StatusUnauthorized, "wrong password\n")
		}
		return c.SendString("welcome\n")
	})
	return app
}
