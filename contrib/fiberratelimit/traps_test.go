package fiberratelimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/valyala/fasthttp"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/fiberratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// everybody is a policy under which all requests share a bucket that does not refill during a test.
func everybody(name string, burst int64) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.Static("everybody"), Limit: ratelimit.Every(time.Hour).WithBurst(burst)}
}

// settling returns a policy whose Settle keeps the responses, and does not change what a request costs.
func settling(name string) (ratelimit.Policy, *[]ratelimit.Response) {
	policy, responses := everybody(name, 100), new([]ratelimit.Response)
	policy.Settle = func(_ *http.Request, r ratelimit.Response) int64 {
		*responses = append(*responses, r)
		return r.Cost
	}
	return policy, responses
}

func limits(t *testing.T, cfg fiberratelimit.Config, policies ...ratelimit.Policy) *fiberratelimit.Limiter {
	limiter := newRatelimit(policies...)
	t.Cleanup(func() { limiter.Close() })
	return fiberratelimit.New(limiter, cfg)
}

// send sends raw requests over one connection, and returns the response to each of them.
func send(t *testing.T, app *fiber.App, requests ...string) (responses []*http.Response) {
	t.Helper()
	client, server := net.Pipe()
	ended := make(chan error, 1)
	app.Handler()
	go func() { ended <- app.Server().ServeConn(server) }()
	lines := bufio.NewReader(client)
	for _, raw := range requests {
		go io.WriteString(client, raw)
		method, _, _ := strings.Cut(raw, " ")
		response, err := http.ReadResponse(lines, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		response.Body = io.NopCloser(strings.NewReader(string(body)))
		responses = append(responses, response)
	}
	client.Close()
	<-ended
	return responses
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }

func bodyOf(r *http.Response) string {
	body, _ := io.ReadAll(r.Body)
	return string(body)
}

func ok200(c fiber.Ctx) error { return c.SendString("ok") }

func TestNewNeedsALimiter(t *testing.T) {
	ratetest.CheckPanic(t, func() { fiberratelimit.New(nil, fiberratelimit.Config{}) }, "fiberratelimit: New: limiter must not be nil")
}

// Fiber's adaptor.HTTPMiddleware is no substitute: the limiter inside it has settled before the handler runs, and counts
// successful logins, too.
func TestAdaptorOfFiber(t *testing.T) {
	login := everybody("login", 2)
	login.Settle = ratelimit.FailedLogins
	limiter := newRatelimit()
	defer limiter.Close()
	for want, m := range map[int]any{
		429: adaptor.HTTPMiddleware(limiter.Limit(login)),
		200: fiberratelimit.New(limiter, fiberratelimit.Config{}).Limit(login),
	} {
		app := fiber.New()
		app.Get("/", m, ok200)
		if got := send(t, app, get("/"), get("/"), get("/"))[2].StatusCode; got != want {
			t.Errorf("the third successful login: status %d, want %d", got, want)
		}
		if _, err := limiter.Reset(t.Context(), login, "static:everybody"); err != nil {
			t.Fatal(err)
		}
	}
}

// fasthttp adds the fields after a chunked body to the header, where a key function would take them for what a proxy has
// written.
func TestTrailersAreNoHeader(t *testing.T) {
	var keys []string
	behind := ratelimit.ClientIP(ratelimit.IPConfig{EdgeHeader: "CF-Connecting-IP"})
	policy := everybody("api", 100)
	policy.Key = func(r *http.Request) (string, error) {
		key, err := behind(r)
		keys = append(keys, fmt.Sprint(key, " ", r.Header["X-Api-Key"]))
		return key, err
	}
	app := fiber.New()
	app.Use("*", limits(t, fiberratelimit.Config{}, policy).Handler())
	var seen string
	app.Post("/", func(c fiber.Ctx) error {
		seen = string(slices.Concat(c.Request().Header.PeekAll("CF-Connecting-IP")...))
		return nil
	})
	send(t, app, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nCF-Connecting-IP: 203.0.113.1\r\n\r\n"+
		"1\r\nx\r\n0\r\nCF-Connecting-IP: 198.51.100.2\r\nX-Api-Key: forged\r\n\r\n")
	if want := []string{"ip:203.0.113.1 []"}; !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
	if seen != "203.0.113.1198.51.100.2" {
		t.Errorf("fasthttp has %q: it keeps trailers apart now, and removeTrailers is not needed", seen)
	}
}

// Middleware may change the header before the limiter. Of a chunked body it must not add to it.
func TestHeaderOfMiddleware(t *testing.T) {
	var got []string
	policy := everybody("api", 100)
	policy.Key = func(r *http.Request) (string, error) {
		got = append(got, fmt.Sprint(r.Header["X-Set"], r.Header["X-Deleted"], r.Header["X-Added"]))
		return "everybody", nil
	}
	app := fiber.New()
	app.Use("*", func(c fiber.Ctx) error {
		c.Request().Header.Set("X-Set", "own")
		c.Request().Header.Del("X-Deleted")
		c.Request().Header.Set("X-Added", "own")
		return c.Next()
	})
	app.Use("*", limits(t, fiberratelimit.Config{}, policy).Handler())
	app.Post("/", ok200)
	const header = "POST / HTTP/1.1\r\nHost: a\r\nX-Set: sent\r\nX-Deleted: sent\r\n"
	send(t, app,
		header+"Content-Length: 1\r\n\r\nx",
		header+"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Set: late\r\nX-Deleted: late\r\n\r\n",
	)
	if want := []string{"[own] [] [own]", "[own] [] []"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Middleware of Use without a path does not see a path without a slash, but a route of all paths does.
func TestUseOfAllPaths(t *testing.T) {
	for path, want := range map[string][]int{"": {200, 200}, "*": {200, 429}} {
		app := fiber.New()
		handler := limits(t, fiberratelimit.Config{}, everybody("api", 1)).Handler()
		if path == "" {
			app.Use(handler)
		} else {
			app.Use(path, handler)
		}
		app.Get("/*", ok200)
		var got []int
		for _, r := range send(t, app, get("http://a?q"), get("http://a?q")) {
			got = append(got, r.StatusCode)
		}
		if !slices.Equal(got, want) {
			t.Errorf("Use(%q): got %v, want %v", path, got, want)
		}
	}
}

// In Use, and in a Group, no route is known, whatever was matched before.
func TestRouteInUse(t *testing.T) {
	var routes []string
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{everybody("api", 100)},
		Observe:  func(_ context.Context, e *ratelimit.Event) { routes = append(routes, e.Route) },
	}))
	defer limiter.Close()
	l := fiberratelimit.New(limiter, fiberratelimit.Config{})
	next := func(c fiber.Ctx) error { return c.Next() }
	app := fiber.New()
	app.Get("/again", l.Limit(everybody("route", 100)), func(c fiber.Ctx) error {
		c.Path("/items/5")
		return c.RestartRouting()
	})
	app.Get("/items/*", next) // a route that is matched before Use
	app.Use("*", l.Handler())
	app.All("/items/:id", l.Limit(everybody("route", 100)), ok200)
	app.Head("/head", l.Limit(everybody("route", 100)), ok200)
	app.Get("/head", l.Limit(everybody("route", 100)), ok200)
	app.Get("/auto", l.Limit(everybody("route", 100)), ok200)

	for request, want := range map[string][]string{
		get("/items/5"): {"", "GET /items/:id"},
		get("/again"):   {"GET /again", "", "GET /items/:id"}, // RestartRouting charges again
		strings.Replace(get("/items/5"), "GET", "PUT", 1): {"", "PUT /items/:id"},
		strings.Replace(get("/head"), "GET", "HEAD", 1):   {"", "HEAD /head"},
		strings.Replace(get("/auto"), "GET", "HEAD", 1):   {"", "GET /auto"},
		get("/none"): {""},
	} {
		for range 2 { // also from the cache
			routes = nil
			send(t, app, request)
			if !slices.Equal(routes, want) {
				t.Errorf("%q: got %q, want %q", request, routes, want)
			}
		}
	}
}

// An error is handled once, by the error handling of the application that the path belongs to.
func TestErrorsAreHandledOnce(t *testing.T) {
	login := everybody("login", 3)
	login.Settle = ratelimit.FailedLogins
	outer, responses := settling("outer")
	l := limits(t, fiberratelimit.Config{}, outer)
	var handled atomic.Int32
	handle := func(status int) fiber.ErrorHandler {
		return func(c fiber.Ctx, err error) error {
			handled.Add(1)
			_, werr := c.Status(status).WriteString("sorry: " + err.Error()) // appends
			return werr
		}
	}
	sub := fiber.New(fiber.Config{ErrorHandler: handle(401)})
	sub.Get("/login", l.Limit(login), func(fiber.Ctx) error { return errors.New("wrong password") })
	app := fiber.New(fiber.Config{ErrorHandler: handle(500)})
	app.Use("*", func(c fiber.Ctx) error {
		err := c.Next()
		if err != nil {
			t.Errorf("middleware outside gets the error that was handled: %v", err)
		}
		return err
	})
	app.Use("*", l.Handler())
	app.Use("/sub", sub)
	app.Get("/broken", func(fiber.Ctx) error { return errors.New("out of order") })

	for i, r := range send(t, app, get("/sub/login"), get("/sub/login"), get("/sub/login"), get("/sub/login"), get("/broken")) {
		status, body := 401, "sorry: wrong password"
		switch i {
		case 3:
			status, body = 429, ""
		case 4:
			status, body = 500, "sorry: out of order"
		}
		if got := bodyOf(r); r.StatusCode != status || body != "" && got != body {
			t.Errorf("request %d: status %d, body %q", i+1, r.StatusCode, got)
		}
		if (*responses)[i].Status != status || !(*responses)[i].Written {
			t.Errorf("request %d: settled for %+v, want status %d", i+1, (*responses)[i], status)
		}
	}
	if got := handled.Load(); got != 4 {
		t.Errorf("errors were handled %d times, want 4", got)
	}
}

// If the error handling fails, Fiber answers 500. If it panics, the request is settled all the same.
func TestErrorHandlerThatFails(t *testing.T) {
	policy, responses := settling("api")
	app := fiber.New(fiber.Config{ErrorHandler: func(_ fiber.Ctx, err error) error {
		if err.Error() == "panic" {
			panic(err)
		}
		return err
	}})
	app.Get("/:error", limits(t, fiberratelimit.Config{}).Limit(policy), func(c fiber.Ctx) error { return errors.New(c.Params("error")) })
	if r := send(t, app, get("/fails"))[0]; r.StatusCode != 500 {
		t.Errorf("status %d", r.StatusCode)
	}
	recovered := serveRecovered(app, "/panic")
	if recovered == nil {
		t.Error("there was no panic")
	}
	if len(*responses) != 2 || (*responses)[0].Status != 500 || !(*responses)[1].Panicked {
		t.Errorf("settled for %+v", *responses)
	}
}

// serveRecovered serves a request without a connection, and returns what a handler panics with.
func serveRecovered(app *fiber.App, path string) (recovered any) {
	defer func() { recovered = recover() }()
	var rctx fasthttp.RequestCtx
	var r fasthttp.Request
	r.SetRequestURI(path)
	rctx.Init(&r, proxyAddr, nil)
	app.Handler()(&rctx)
	return nil
}

// Without a Settle, an error goes on to the middleware outside.
func TestErrorsWithoutSettle(t *testing.T) {
	failed := errors.New("failed")
	var got error
	app := fiber.New()
	app.Use("*", func(c fiber.Ctx) error {
		got = c.Next()
		return got
	})
	app.Get("/", limits(t, fiberratelimit.Config{}).Limit(everybody("api", 1)), func(fiber.Ctx) error { return failed })
	if r := send(t, app, get("/"))[0]; r.StatusCode != 500 || got != failed {
		t.Errorf("status %d, error %v", r.StatusCode, got)
	}
}

// A panic that nothing recovers ends the process, but not before the request is settled.
func TestPanicWithoutRecovery(t *testing.T) {
	policy, responses := settling("api")
	app := fiber.New()
	app.Get("/", limits(t, fiberratelimit.Config{}).Limit(policy), func(fiber.Ctx) error { panic("boom") })
	if got := serveRecovered(app, "/"); got != "boom" {
		t.Errorf("recovered %v", got)
	}
	if len(*responses) != 1 || !(*responses)[0].Panicked {
		t.Errorf("settled for %+v", *responses)
	}
}

// A request that a timeout has answered is settled for that, while the handler still uses the response.
func TestTimeout(t *testing.T) {
	outside, ofOutside := settling("outside")
	waiting := everybody("waiting", 1)
	waiting.MaxWait = time.Hour
	l := limits(t, fiberratelimit.Config{}, outside)
	app := fiber.New()
	app.Use("*", l.Handler())
	ended := make(chan struct{})
	app.Get("/slow", timeout.New(func(c fiber.Ctx) error {
		defer close(ended)
		<-c.Context().Done()
		for range 1000 {
			c.Locals("late", "x")
		}
		return nil
	}, timeout.Config{Timeout: time.Millisecond, OnTimeout: func(c fiber.Ctx) error { return c.SendStatus(504) }}))
	within := timeout.New(func(c fiber.Ctx) error { return c.Next() }, timeout.Config{Timeout: 20 * time.Millisecond})
	app.Get("/waiting", within, l.Limit(waiting), ok200)

	if r := send(t, app, get("/slow"))[0]; r.StatusCode != 504 {
		t.Errorf("status %d", r.StatusCode)
	}
	if got := (*ofOutside)[0]; got.Status != 408 || !got.Written {
		t.Errorf("settled for %+v", got)
	}
	<-ended
	for i, r := range send(t, app, get("/waiting"), get("/waiting")) {
		if want := []int{200, 429}[i]; r.StatusCode != want { // at once, because the timeout comes before the token
			t.Errorf("a limit within a timeout: status %d, want %d", r.StatusCode, want)
		}
	}
}

// A key function finds the Locals, and a goroutine of a handler does not: handlers write them, and Fiber gives them to
// the next request.
func TestLocals(t *testing.T) {
	type memberKey struct{}
	policy := everybody("api", 1)
	policy.Key = ratelimit.ContextKey("member", func(ctx context.Context) (string, bool) {
		member, ok := ctx.Value(memberKey{}).(string)
		return member, ok
	})
	app := fiber.New()
	app.Use("*", func(c fiber.Ctx) error {
		c.Locals(memberKey{}, strings.Clone(c.Query("member")))
		return c.Next()
	})
	app.Use("*", limits(t, fiberratelimit.Config{}, policy).Handler())
	stop := make(chan struct{})
	var running sync.WaitGroup
	app.Get("/", func(c fiber.Ctx) error {
		ctx, looked := c.Context(), make(chan struct{})
		defer func() { <-looked }()
		running.Go(func() {
			for i := 0; ; i++ {
				if i == 10 {
					close(looked)
				}
				if got := ctx.Value(memberKey{}); got != nil {
					t.Errorf("a goroutine finds %v", got)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		for i := range 100 {
			c.Locals(i, i)
		}
		return nil
	})
	for i, r := range send(t, app, get("/?member=ann"), get("/?member=bob"), get("/?member=ann")) {
		if want := []int{200, 200, 429}[i]; r.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i+1, r.StatusCode, want)
		}
	}
	close(stop)
	running.Wait()
}

// A decision ends the use of Locals, also one that refuses: what waits for the store may still have the context.
func TestLocalsAfterARefusal(t *testing.T) {
	type memberKey struct{}
	var during, after any
	policy := everybody("api", 1)
	policy.Key = func(r *http.Request) (string, error) {
		during = r.Context().Value(memberKey{})
		return "everybody", nil
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{policy}, Deny: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		after = r.Context().Value(memberKey{})
	})}))
	defer limiter.Close()
	app := fiber.New()
	app.Use("*", func(c fiber.Ctx) error {
		c.Locals(memberKey{}, "ann")
		return c.Next()
	})
	app.Use("*", fiberratelimit.New(limiter, fiberratelimit.Config{}).Handler())
	app.Get("/", ok200)
	send(t, app, get("/"), get("/"))
	if during != "ann" || after != nil {
		t.Errorf("found %v while the limiter decides, and %v afterwards", during, after)
	}
}

// Ctx is the context of the request until its handler has returned.
func TestCtx(t *testing.T) {
	type key struct{}
	var requests []*http.Request
	var during []string
	policy := everybody("api", 1)
	policy.Key = func(r *http.Request) (string, error) {
		requests = append(requests, r)
		c, ok := fiberratelimit.Ctx(r)
		during = append(during, fmt.Sprint("key ", ok, " ", c.Path()))
		return "everybody", nil
	}
	policy.Settle = func(r *http.Request, _ ratelimit.Response) int64 {
		requests = append(requests, r)
		c, ok := fiberratelimit.Ctx(r)
		during = append(during, fmt.Sprint("settle ", ok, " ", c.Path(), " ", r.Context().Value(key{})))
		return 1
	}
	app := fiber.New()
	app.Get("/a", func(c fiber.Ctx) error {
		c.SetContext(context.WithValue(c.Context(), key{}, "value of the context"))
		return c.Next()
	}, limits(t, fiberratelimit.Config{}).Limit(policy), ok200)
	send(t, app, get("/a"), get("/a"))
	if want := []string{"key true /a", "settle true /a value of the context", "key true /a"}; !slices.Equal(during, want) {
		t.Errorf("got %q, want %q", during, want)
	}
	for _, r := range requests {
		if c, ok := fiberratelimit.Ctx(r); c != nil || ok {
			t.Error("Ctx returns a context that belongs to another request by now")
		}
	}
	if _, ok := fiberratelimit.Ctx((&http.Request{}).WithContext(t.Context())); ok {
		t.Error("Ctx finds the context of a request of net/http")
	}
}

// Headers of other middleware remain, those of a refusal replace what describes another response, and none is doubled.
func TestResponseHeader(t *testing.T) {
	for _, cfg := range []fiber.Config{{}, {DisableHeaderNormalizing: true}} {
		app := fiber.New(cfg)
		app.Use("*", func(c fiber.Ctx) error {
			c.Set("Vary", "Origin")
			c.Response().Header.Add("Vary", "Accept")
			c.Set("x-other", "1")
			c.Set("ETag", `"1"`)
			c.Set("cache-control", "public")
			c.Cookie(&fiber.Cookie{Name: "session", Value: "1"})
			c.Cookie(&fiber.Cookie{Name: "theme", Value: "2"})
			c.WriteString("begun")
			return c.Next()
		})
		l := limits(t, fiberratelimit.Config{}, everybody("api", 1))
		app.Use("*", l.Handler())
		app.Get("/", func(c fiber.Ctx) error {
			c.Set("Cache-Control", "private")
			return c.SendString("ok")
		})
		responses := send(t, app, get("/"), get("/"), strings.Replace(get("/"), "GET", "HEAD", 1))
		for i, r := range responses {
			for name, want := range map[string]int{"Vary": 2, "X-Other": 1, "Set-Cookie": 2, "X-Ratelimit-Limit": 1, "Content-Type": 1} {
				if len(r.Header[name]) != want {
					t.Errorf("%d: %s: %q, want %d", i, name, r.Header[name], want)
				}
			}
			if body := bodyOf(r); strings.Contains(body, "begun") || i < 2 && len(body) != int(r.ContentLength) {
				t.Errorf("%d: body %q of %d bytes", i, body, r.ContentLength)
			}
			if i > 0 && (len(r.Header["Etag"]) != 0 || fmt.Sprint(r.Header["Cache-Control"]) != "[no-store]") {
				t.Errorf("a denial has %q", r.Header)
			}
		}
		if get, head := responses[1].ContentLength, responses[2].ContentLength; get != head {
			t.Errorf("a denied GET has %d bytes, a HEAD %d", get, head)
		}
	}
}

// Deny and Error write as they do under net/http.
func TestRefusalsAsUnderNetHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		deny   http.HandlerFunc
		status int
		header http.Header // a part of it
		body   string
	}{
		"nothing": {func(http.ResponseWriter, *http.Request) {}, 200, http.Header{"X-Ratelimit-Remaining": {"0"}}, ""},
		"body": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<html>")
			io.WriteString(w, "</html>")
		}, 200, http.Header{"Content-Type": {"text/html; charset=utf-8"}}, "<html></html>"},
		"status and then header": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(418)
			w.Header().Set("X-Late", "1")
			w.WriteHeader(500)
		}, 418, http.Header{"X-Late": nil}, ""},
		"cookies": {func(w http.ResponseWriter, _ *http.Request) {
			if w.Header().Get("Set-Cookie") != "" {
				w.Header().Del("Set-Cookie") // of the application
			}
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
			http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
			w.Header().Del("X-RateLimit-Limit")
			w.WriteHeader(429)
		}, 429, http.Header{"Set-Cookie": {"a=1", "b=2"}, "X-Ratelimit-Limit": nil}, ""},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/wait\r\nX-Forged: 1", http.StatusSeeOther)
		}, 303, http.Header{"X-Forged": nil, "Content-Type": {"text/html; charset=utf-8"}}, "<a href=\"/wait\r\nX-Forged: 1\">See Other</a>.\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Deny: c.deny, Policies: []ratelimit.Policy{everybody("api", 1)}}))
			defer limiter.Close()
			app := fiber.New()
			app.Use("*", func(c fiber.Ctx) error {
				c.Cookie(&fiber.Cookie{Name: "a", Value: "0", SessionOnly: true, Path: "/"})
				return c.Next()
			})
			app.Use("*", fiberratelimit.New(limiter, fiberratelimit.Config{}).Handler())
			app.Get("/", ok200)
			responses := send(t, app, get("/"), get("/"))
			r := responses[1]
			if body := bodyOf(r); r.StatusCode != c.status || body != c.body {
				t.Errorf("status %d, body %q", r.StatusCode, body)
			}
			for name, values := range c.header {
				if !slices.Equal(r.Header[name], values) {
					t.Errorf("%s: %q, want %q", name, r.Header[name], values)
				}
			}
		})
	}
}

// The text of an error for the application is not that of its reason: fiber.DefaultErrorHandler would send it.
func TestErrorsAreSilent(t *testing.T) {
	policy := everybody("api", 1)
	policy.Key = ratetest.Finds("", errors.New("secret"))
	app := fiber.New()
	app.Use("*", limits(t, fiberratelimit.Config{Errors: true}, policy).Handler())
	if r := send(t, app, get("/"))[0]; r.StatusCode != 503 || bodyOf(r) != "Service Unavailable" {
		t.Errorf("status %d, body %q", r.StatusCode, bodyOf(r))
	}
}

// Fiber calls the middleware of Use for a request that it cannot read. It is charged, and answered by Fiber.
func TestMalformedRequest(t *testing.T) {
	policy, responses := settling("api")
	app := fiber.New()
	app.Use("*", limits(t, fiberratelimit.Config{}, policy).Handler())
	app.Get("/", ok200)
	if r := send(t, app, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For 203.0.113.1\r\n\r\n")[0]; r.StatusCode != 400 {
		t.Errorf("status %d", r.StatusCode)
	}
	if len(*responses) != 1 || (*responses)[0].Status < 400 {
		t.Errorf("settled for %+v", *responses)
	}
}

type customCtx struct{ fiber.DefaultCtx }

// An application may have a context type of its own.
func TestCustomCtx(t *testing.T) {
	app := fiber.NewWithCustomCtx(func(app *fiber.App) fiber.CustomCtx {
		return &customCtx{DefaultCtx: *fiber.NewDefaultCtx(app)}
	})
	policy, responses := settling("api")
	var own bool
	key := policy.Key
	policy.Key = func(r *http.Request) (string, error) {
		c, _ := fiberratelimit.Ctx(r)
		_, own = c.(*customCtx)
		return key(r)
	}
	app.Get("/:id", limits(t, fiberratelimit.Config{}).Limit(policy), func(fiber.Ctx) error { return fiber.ErrTeapot })
	if r := send(t, app, get("/5"))[0]; r.StatusCode != 418 || !own || (*responses)[0].Status != 418 {
		t.Errorf("status %d, own context %t, settled for %+v", r.StatusCode, own, *responses)
	}
}

// A body that is streamed is not read to find out its length: its writer may not end before the request is settled.
func TestStreamIsNotRead(t *testing.T) {
	settled := make(chan ratelimit.Response, 1)
	policy := everybody("api", 10)
	policy.Settle = func(_ *http.Request, r ratelimit.Response) int64 {
		settled <- r
		return 1
	}
	app := fiber.New()
	app.Get("/", limits(t, fiberratelimit.Config{}).Limit(policy), func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			select {
			case r := <-settled:
				fmt.Fprint(w, "settled for ", r.Status, r.Written, r.Bytes)
			case <-time.After(5 * time.Second):
				w.WriteString("not settled")
			}
		})
	})
	if got := bodyOf(send(t, app, get("/"))[0]); got != "settled for 200 true 0" {
		t.Errorf("body %q", got)
	}
}
