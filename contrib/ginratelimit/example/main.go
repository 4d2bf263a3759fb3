// Example is an API on gin, with limits for all routes, for a group and for failed logins. Buckets are in memory.
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

	"github.com/gin-gonic/gin"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/ginratelimit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	fmt.Printf("Listening: %s\nTry: for i in 1 2 3 4 5 6; do curl -si -d password=guess %s/login | head -1; done\n", url, url)
	server := &http.Server{Handler: newAPI(), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

func newAPI() http.Handler {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "api",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerSecond(100),
		}},
	}))
	limits := ginratelimit.New(limiter, ginratelimit.Config{})

	r := gin.New()
	r.Use(gin.Recovery(), limits.Handler())

	// Five failed logins at once, then one in 15 minutes. Successful ones are not counted.
	r.POST("/login", limits.Limit(ratelimit.Policy{
		Name:   "login",
		Key:    ratelimit.RemoteIP(),
		Limit:  ratelimit.Every(15 * time.Minute).WithBurst(5),
		Settle: ratelimit.FailedLogins,
	}), func(c *gin.Context) {
		if c.PostForm("password") != "sesame" {
			c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": "wrong password"})
			return
		}
		c.JSON(http.StatusOK, gin.H{"welcome": true})
	})

	// Each route of the group has a limit for each client.
	items := r.Group("/items", limits.Limit(ratelimit.Policy{
		Name:  "items",
		Key:   ratelimit.Join(ratelimit.Route(), ratelimit.RemoteIP()),
		Limit: ratelimit.PerMinute(30),
	}))
	items.GET("/:id", func(c *gin.Context) {
		if d, ok := ginratelimit.FromContext(c); ok {
			c.JSON(http.StatusOK, gin.H{"id": c.Param("id"), "requestsLeft": d.Tightest().Remaining})
		}
	})
	return r
}
