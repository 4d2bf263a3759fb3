package fiberratelimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/compress"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/fiberratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"), // ends within 10 s of Shutdown
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*inMemoryCacheManager).handleCleanCache"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp/stackless.funcWorker"),
		goleak.IgnoreAnyFunction("github.com/go-tokenbucket/ratelimit/contrib/fiberratelimit_test.(*chanListener).Accept"),
	)
}

// A fiberContext does with Fiber what handlers of the list want.
type fiberContext struct{ c fiber.Ctx }

func (f fiberContext) Context() context.Context { return f.c.Context() }

func (f fiberContext) FromContext() (*ratelimit.Decision, bool) {
	return fiberratelimit.FromContext(f.c)
}

func (f fiberContext) Query(name string) string { return f.c.Query(name) }

func (f fiberContext) Text(status int, body string) error { return f.c.Status(status).SendString(body) }

func (f fiberContext) Status(status int) error {
	f.c.Status(status)
	return nil
}

func (f fiberContext) Redirect(to string) error {
	return f.c.Redirect().Status(http.StatusFound).To(to)
}

func (f fiberContext) Stream(write func(io.Writer, func() error) error) error {
	return f.c.SendStreamWriter(func(w *bufio.Writer) { _ = write(w, w.Flush) })
}

func (f fiberContext) Hijack(serve func(net.Conn)) error {
	f.c.Status(http.StatusSwitchingProtocols)
	f.c.Set("Connection", "Upgrade")
	f.c.Set("Upgrade", "websocket")
	f.c.RequestCtx().Hijack(serve)
	return nil
}

func (f fiberContext) Writer() http.ResponseWriter { return nil }

// answerErrors is the error handling that an application writes. It calls on before it answers.
func answerErrors(on func(adaptertest.Context, int, error)) fiber.ErrorHandler {
	return func(c fiber.Ctx, err error) error {
		status := fiber.StatusInternalServerError
		if e := (*fiber.Error)(nil); errors.As(err, &e) {
			status = e.Code
		}
		if on != nil {
			on(fiberContext{c}, status, err)
		}
		return c.Status(status).SendString("framework " + strconv.Itoa(status))
	}
}

func build(app adaptertest.App) *fiber.App {
	cfg := fiber.Config{}
	if app.Errors {
		cfg.ErrorHandler = answerErrors(app.OnError)
	}
	f := fiber.New(cfg)
	for _, m := range app.Outside {
		f.Use(m)
	}
	var limits *fiberratelimit.Limiter
	if app.Limiter != nil {
		limits = fiberratelimit.New(app.Limiter, fiberratelimit.Config{Errors: app.Errors})
		if app.Handler {
			f.Use(limits.Handler())
		}
	}
	for _, m := range app.Inside {
		f.Use(m)
	}
	groups := map[string]fiber.Router{}
	for _, route := range app.Routes {
		var to fiber.Router = f
		prefix := ""
		for _, g := range route.Groups {
			prefix += g.Prefix
			if groups[prefix] == nil {
				inner := to.Group(g.Prefix)
				if g.Mount {
					sub := fiber.New()
					inner = sub
					defer to.Use(g.Prefix, sub) // after its routes
				}
				if limits != nil && len(g.Policies) > 0 {
					inner.Use(limits.Limit(g.Policies...))
				}
				groups[prefix] = inner
			}
			to = groups[prefix]
		}
		var handlers []any
		if limits != nil && len(route.Policies) > 0 {
			handlers = append(handlers, limits.Limit(route.Policies...))
		}
		if route.Native != nil {
			handlers = append(handlers, route.Native)
		} else {
			handlers = append(handlers, func(c fiber.Ctx) error { return route.Handler(fiberContext{c}) })
		}
		to.Add([]string{route.Method}, route.Path, handlers[0], handlers[1:]...)
	}
	return f
}

// serve serves an app on loopback until the test ends, and returns its URL.
func serve(t testing.TB, app *fiber.App) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := app.ShutdownWithTimeout(time.Millisecond); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-ended
	})
	return "http://" + ln.Addr().String()
}

func framework() adaptertest.Framework {
	const (
		noHTTP2  = "fasthttp serves HTTP/1.1 only"
		inUse    = "Fiber runs middleware of Use and of a Group before it looks for the route"
		ends     = "a panic without the recover middleware ends the process: nothing in Fiber or fasthttp recovers it"
		noFlush  = "fasthttp compresses a stream in blocks, and keeps back what does not fill one"
		noNotice = "fasthttp reads nothing from a connection while a request is handled, so nothing can notice that the client has left"
	)
	failed := errors.New("wrong password")
	fail := func(status int) fiber.Handler {
		return func(fiber.Ctx) error { return fiber.NewError(status, "wrong password") }
	}
	return adaptertest.Framework{
		Serve:    func(t testing.TB, app adaptertest.App) string { return serve(t, build(app)) },
		Path:     adaptertest.Colon,
		Pooled:   []string{"github.com/valyala/fasthttp.(*workerPool).workerFunc"},
		Recovery: recovery.New(),
		Gzip:     compress.New(),
		Logger: func(log func(adaptertest.Context)) any {
			return func(c fiber.Ctx) error {
				err := c.Next()
				log(fiberContext{c})
				return err
			}
		},
		Ways: []adaptertest.Way{
			{Name: "a returned *fiber.Error", Status: 401, Fail: fail(401)},
			{Name: "a returned error", Status: 500, Fail: func(fiber.Ctx) error { return failed }},
			{Name: "c.SendStatus", Status: 401,
				Fail:    func(c fiber.Ctx) error { return c.SendStatus(401) },
				Succeed: func(c fiber.Ctx) error { return c.SendStatus(200) }},
			{Name: "c.JSON", Status: 403,
				Fail:    func(c fiber.Ctx) error { return c.Status(403).JSON(fiber.Map{"error": "wrong password"}) },
				Succeed: func(c fiber.Ctx) error { return c.JSON(fiber.Map{"token": "x"}) }},
			{Name: "c.SendFile", Succeed: func(c fiber.Ctx) error { return c.SendFile("list_test.go") }},
			{Name: "a net/http handler", Status: 401,
				Fail:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }),
				Succeed: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "welcome") })},
			{Name: "an error that middleware inside handles", Status: 403, Fail: func(fiber.Ctx) error { return failed },
				Inside: []any{func(c fiber.Ctx) error {
					if err := c.Next(); !errors.Is(err, failed) {
						return err
					}
					return c.SendStatus(403)
				}}},
			{Name: "the timeout middleware inside", Status: 408,
				Fail: timeout.New(func(c fiber.Ctx) error {
					<-c.Context().Done()
					return c.Context().Err()
				}, timeout.Config{Timeout: time.Millisecond}),
				Succeed: timeout.New(func(c fiber.Ctx) error { return c.SendString("welcome") }, timeout.Config{Timeout: time.Minute})},
		},
		Patterns: map[string]string{"HEAD of GET": "GET /items/:id"},
		Lacks: map[string]string{
			"denial over HTTP/2":                                     noHTTP2,
			"stream over HTTP/2":                                     noHTTP2,
			"successful logins: 200 without a body":                  "Fiber does not record that a handler chose 200: it looks like a handler that did nothing",
			"stream: Settle is told of its bytes":                    "Fiber writes a stream in a goroutine of its own, which ends after the handlers",
			"deadlines by http.ResponseController":                   "there is no http.ResponseWriter",
			"a client that leaves while it waits":                    noNotice,
			"a client that leaves while its request is handled":      noNotice,
			"pattern by Handler: 404":                                inUse,
			"pattern by Handler: 405":                                inUse,
			"pattern by Handler: made-up method":                     "Fiber answers 501 before any middleware",
			"pattern by Handler: HEAD of GET":                        inUse,
			"pattern by Handler: a route":                            inUse,
			"pattern by Handler: a route of a group":                 inUse,
			"pattern by Handler: a route of a nested group":          inUse,
			"pattern by Handler: a route of a mount":                 inUse,
			"pattern by Limit of a group: a route of a group":        inUse,
			"pattern by Limit of a group: a route of a nested group": inUse,
			"pattern by Limit of a group: a route of a mount":        inUse,
		},
		NotRun: map[string]string{
			"failed logins: a panic":                      ends,
			"failed logins: an abort":                     ends,
			"panic without Recovery":                      ends,
			"panic with http.ErrAbortHandler":             ends,
			"Errors: a client that leaves while it waits": noNotice,
			"stream, gzip outside":                        noFlush,
			"stream, gzip inside":                         noFlush,
		},
	}
}

func TestList(t *testing.T) { adaptertest.Run(t, framework()) }
