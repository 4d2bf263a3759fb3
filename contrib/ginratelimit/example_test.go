package ginratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/ginratelimit"
)

func Example() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}},
	}))
	defer limiter.Close()
	limits := ginratelimit.New(limiter, ginratelimit.Config{})

	login := ratelimit.Policy{Name: "login", Key: ratelimit.RemoteIP(), Settle: ratelimit.FailedLogins,
		Limit: ratelimit.Every(15 * time.Minute).WithBurst(2)}

	r := gin.New()
	r.Use(limits.Handler())
	r.POST("/login", limits.Limit(login), func(c *gin.Context) { c.Status(http.StatusUnauthorized) })

	for range 3 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 401 1
	// 401 0
	// 429 0
}

type userKey struct{}

// A key function sees the request, not the gin.Context. An identity that authentication puts there with c.Set goes into
// the context of the request first.
func Example_identity() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{
			Name:  "user",
			Limit: ratelimit.PerMinute(60),
			Key: ratelimit.ContextKey("user", func(ctx context.Context) (string, bool) {
				user, ok := ctx.Value(userKey{}).(string)
				return user, ok
			}),
		}},
	}))
	defer limiter.Close()
	limits := ginratelimit.New(limiter, ginratelimit.Config{})

	r := gin.New()
	r.Use(
		gin.BasicAuth(gin.Accounts{"ann": "sesame"}), // sets gin.AuthUserKey
		func(c *gin.Context) {
			ctx := context.WithValue(c.Request.Context(), userKey{}, c.GetString(gin.AuthUserKey))
			c.Request = c.Request.WithContext(ctx)
		},
		limits.Handler(),
	)
	r.GET("/", func(c *gin.Context) {
		d, _ := ginratelimit.FromContext(c)
		c.String(http.StatusOK, d.Results[0].Key)
	})

	w := httptest.NewRecorder()
	request := httptest.NewRequest("GET", "/", nil)
	request.SetBasicAuth("ann", "sesame")
	r.ServeHTTP(w, request)
	fmt.Println(w.Code, w.Body)
	// Output: 200 user:ann
}

// An application answers refused requests as it answers its other errors.
func ExampleConfig_errors() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(1)}},
	}))
	defer limiter.Close()
	limits := ginratelimit.New(limiter, ginratelimit.Config{Errors: true})

	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			status := c.Writer.Status()
			c.JSON(status, gin.H{"error": http.StatusText(status)})
		}
	}, limits.Handler())
	r.GET("/", func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"ok": true}) })

	for range 2 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 {"ok":true}
	// 429 {"error":"Too Many Requests"}
}
