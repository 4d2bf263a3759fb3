package ginratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/ginratelimit"
)

// Limits for all routes, for one route and for a group.
func ExampleLimiter_Limit() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()
	login := ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Settle: ratelimit.FailedLogins,
		Limit: ratelimit.Every(15 * time.Minute).WithBurst(1)}
	perRoute := ratelimit.Policy{Name: "route", Key: ratelimit.Join(ratelimit.Route(), ratelimit.RemoteIP()), Limit: ratelimit.PerMinute(2)}

	limits := ginratelimit.New(limiter, ginratelimit.Config{})
	r := gin.New()
	r.Use(gin.Recovery(), limits.Handler())            // the policies of Config, for all routes
	r.POST("/login", limits.Limit(login), signIn)      // one route
	items := r.Group("/items", limits.Limit(perRoute)) // a group
	items.GET("/:id", func(c *gin.Context) {
		d, _ := ginratelimit.FromContext(c)
		c.JSON(http.StatusOK, gin.H{"requestsLeft": d.Tightest().Remaining})
	})

	for _, target := range []string{"POST /login", "POST /login", "GET /items/5", "GET /items/6", "GET /items/7"} {
		var method, path string
		fmt.Sscan(target, &method, &path)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		fmt.Println(target, w.Code)
	}
	// Output:
	// POST /login 401
	// POST /login 429
	// GET /items/5 200
	// GET /items/6 200
	// GET /items/7 429
}

func signIn(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) }
