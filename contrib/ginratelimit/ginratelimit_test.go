package ginratelimit_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/gin-contrib/gzip"
	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/ginratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	goleak.VerifyTestMain(m)
}

// A ginContext does with gin what handlers of the list want.
type ginContext struct {
	adaptertest.NetHTTP
	c *gin.Context
}

func contextOf(c *gin.Context) ginContext {
	return ginContext{adaptertest.NetHTTP{W: c.Writer, R: c.Request}, c}
}

func (g ginContext) FromContext() (*ratelimit.Decision, bool) { return ginratelimit.FromContext(g.c) }

func (g ginContext) Query(name string) string { return g.c.Query(name) }

func (g ginContext) Text(status int, body string) error {
	g.c.String(status, "%s", body)
	return nil
}

func (g ginContext) Status(status int) error {
	g.c.Status(status)
	return nil
}

func (g ginContext) Redirect(to string) error {
	g.c.Redirect(http.StatusFound, to)
	return nil
}

// answerErrors is the error handling that an application writes. It calls on before it answers.
func answerErrors(on func(adaptertest.Context, int, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Next()
		if last := c.Errors.Last(); last != nil && !c.Writer.Written() {
			if on != nil {
				on(contextOf(c), c.Writer.Status(), last)
			}
			c.String(c.Writer.Status(), "framework %d", c.Writer.Status())
		}
	}
}

func engine(t testing.TB, app adaptertest.App) *gin.Engine {
	r := gin.New()
	r.HandleMethodNotAllowed = true
	var limits *ginratelimit.Limiter
	if app.Limiter != nil {
		limits = ginratelimit.New(app.Limiter, ginratelimit.Config{Errors: app.Errors})
	}
	if app.Errors {
		r.Use(answerErrors(app.OnError))
	}
	for _, m := range app.Outside {
		r.Use(m.(gin.HandlerFunc))
	}
	if limits != nil && app.Handler {
		r.Use(limits.Handler())
	}
	for _, m := range app.Inside {
		r.Use(m.(gin.HandlerFunc))
	}
	groups := make(map[string]*gin.RouterGroup)
	for _, route := range app.Routes {
		group, prefix := &r.RouterGroup, ""
		for _, g := range route.Groups {
			if g.Mount {
				t.Fatal("gin does not mount engines")
			}
			prefix += g.Prefix
			if groups[prefix] == nil {
				groups[prefix] = group.Group(g.Prefix)
				if limits != nil && len(g.Policies) > 0 {
					groups[prefix].Use(limits.Limit(g.Policies...))
				}
			}
			group = groups[prefix]
		}
		var handlers []gin.HandlerFunc
		if limits != nil && len(route.Policies) > 0 {
			handlers = append(handlers, limits.Limit(route.Policies...))
		}
		if route.Native != nil {
			handlers = append(handlers, route.Native.(gin.HandlerFunc))
		} else {
			handlers = append(handlers, func(c *gin.Context) {
				if err := route.Handler(contextOf(c)); err != nil {
					c.AbortWithError(http.StatusInternalServerError, err)
				}
			})
		}
		group.Handle(route.Method, route.Path, handlers...)
	}
	return r
}

// framework is gin as the list wants it.
func framework() adaptertest.Framework {
	const noMount = "gin does not mount engines in engines, only http.Handlers by gin.WrapH"
	failed := errors.New("wrong password")
	choosing := gin.HandlerFunc(func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && errors.Is(c.Errors.Last(), failed) {
			c.JSON(403, gin.H{"error": "wrong password"})
		}
	})
	return adaptertest.Framework{
		Serve: func(t testing.TB, app adaptertest.App) string {
			return adaptertest.ServeHTTP(t, engine(t, app))
		},
		Path:     adaptertest.Colon,
		Recovery: gin.Recovery(),
		Gzip:     gzip.Gzip(gzip.DefaultCompression),
		Logger: func(log func(adaptertest.Context)) any {
			return gin.HandlerFunc(func(c *gin.Context) {
				c.Next()
				log(contextOf(c))
			})
		},
		Ways: []adaptertest.Way{
			{Name: "c.AbortWithStatus", Status: 401, Fail: gin.HandlerFunc(func(c *gin.Context) { c.AbortWithStatus(401) })},
			{Name: "c.AbortWithStatusJSON", Status: 401, Fail: gin.HandlerFunc(func(c *gin.Context) { c.AbortWithStatusJSON(401, gin.H{"error": "wrong password"}) })},
			{Name: "c.AbortWithError", Status: 401, Fail: gin.HandlerFunc(func(c *gin.Context) { c.AbortWithError(401, failed) })},
			{Name: "c.Status and c.Error, for middleware outside", Status: 401,
				Outside: []any{answerErrors(nil)},
				Fail: gin.HandlerFunc(func(c *gin.Context) {
					c.Status(401)
					c.Error(failed)
				})},
			{Name: "c.Error, for middleware outside that chooses the status", Status: 403,
				Outside: []any{choosing},
				Fail:    gin.HandlerFunc(func(c *gin.Context) { c.Error(failed) }),
				Succeed: gin.HandlerFunc(func(c *gin.Context) { c.JSON(200, gin.H{}) })},
			{Name: "c.Error, for middleware inside that chooses the status", Status: 403,
				Inside: []any{choosing},
				Fail:   gin.HandlerFunc(func(c *gin.Context) { c.Error(failed) })},
			{Name: "c.MustBindWith", Status: 400, Fail: gin.HandlerFunc(func(c *gin.Context) {
				var form struct {
					Password string `form:"password" binding:"required"`
				}
				_ = c.Bind(&form)
			})},
			{Name: "c.JSON", Status: 401,
				Fail:    gin.HandlerFunc(func(c *gin.Context) { c.JSON(401, gin.H{}) }),
				Succeed: gin.HandlerFunc(func(c *gin.Context) { c.JSON(200, gin.H{}) })},
			{Name: "gin.WrapF", Status: 401,
				Fail:    gin.WrapF(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }),
				Succeed: gin.WrapF(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") })},
			{Name: "c.Stream", Succeed: gin.HandlerFunc(func(c *gin.Context) {
				c.Stream(func(w io.Writer) bool {
					fmt.Fprint(w, "welcome")
					return false
				})
			})},
			{Name: "an abort, with Recovery inside", Status: 200, Inside: []any{gin.Recovery()},
				Fail: gin.HandlerFunc(func(c *gin.Context) { panic(http.ErrAbortHandler) })},
			{Name: "a broken pipe, with Recovery inside", Status: 200, Inside: []any{gin.Recovery()},
				Fail: gin.HandlerFunc(func(c *gin.Context) { panic(&net.OpError{Op: "write", Err: syscall.EPIPE}) })},
		},
		Lacks: map[string]string{
			"pattern by Handler: a route of a mount":          noMount,
			"pattern by Limit of a group: a route of a mount": noMount,
			"pattern by Limit of a route: a route of a mount": noMount,
		},
	}
}

func TestList(t *testing.T) { adaptertest.Run(t, framework()) }

func BenchmarkCost(b *testing.B) {
	adaptertest.Cost(b, func(l *ratelimit.Limiter) func() {
		r := gin.New()
		if l != nil {
			r.Use(ginratelimit.New(l, ginratelimit.Config{}).Handler())
		}
		r.GET("/items/:id", func(*gin.Context) {})
		return adaptertest.Requests(r)
	})
}
