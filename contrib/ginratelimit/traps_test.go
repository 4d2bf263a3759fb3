package ginratelimit_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/ginratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// everybody is a policy under which all requests share a bucket that does not refill during a test.
func everybody(name string, burst int64) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.Static("everybody"), Limit: ratelimit.Every(time.Hour).WithBurst(burst)}
}

// settling returns a policy whose Settle keeps the responses, and does not change what a request costs.
func settling() (ratelimit.Policy, *[]ratelimit.Response) {
	policy, responses := everybody("api", 10), new([]ratelimit.Response)
	policy.Settle = func(_ *http.Request, response ratelimit.Response) int64 {
		*responses = append(*responses, response)
		return response.Cost
	}
	return policy, responses
}

func newLimits(t *testing.T, cfg ratelimit.Config, own ginratelimit.Config) *ginratelimit.Limiter {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	return ginratelimit.New(ratetest.NewLimiter(t, cfg), own)
}

func send(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func remaining(t *testing.T, l *ginratelimit.Limiter, p ratelimit.Policy) int64 {
	t.Helper()
	result, err := l.Peek(t.Context(), p, "static:everybody")
	if err != nil {
		t.Fatal(err)
	}
	return result.Remaining
}

// A wrapped is a writer as middleware wraps it. It keeps the status that is written to it.
type wrapped struct {
	gin.ResponseWriter
	status int
}

func (w *wrapped) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *wrapped) WriteHeaderNow() {
	w.status = w.Status()
	w.ResponseWriter.WriteHeaderNow()
}

// gin sends the status after the last handler, past all writers. So a limiter that watches a writer is told of no
// response, here of a failed login.
func TestTheObviousAdapterSettlesForNothing(t *testing.T) {
	policy, told := settling()
	limits := newLimits(t, ratelimit.Config{}, ginratelimit.Config{})
	r := gin.New()
	r.Use(func(c *gin.Context) {
		limits.Limiter.Limit(policy)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
	})
	watching := new(wrapped)
	r.Use(func(c *gin.Context) {
		watching.ResponseWriter, c.Writer = c.Writer, watching
	})
	r.GET("/", func(c *gin.Context) { c.AbortWithStatus(401) })
	if w := send(r, "GET", "/"); w.Code != 401 || (*told)[0].Written || (*told)[0].Status != 200 {
		t.Errorf("status %d, told of %+v", w.Code, *told)
	}
	watching.status = 0
	if w := send(r, "GET", "/forged"); w.Code != 404 || watching.status != 0 {
		t.Errorf("status %d, and the writer has seen %d", w.Code, watching.status)
	}
}

// gin sets 404 and 405 before the handlers run, and writes them afterwards.
func TestSettleOf404And405(t *testing.T) {
	policy, responses := settling()
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{policy}}, ginratelimit.Config{})
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.Use(limits.Handler())
	r.GET("/", func(*gin.Context) {})
	for _, c := range []struct {
		method, path string
		status       int
		want         ratelimit.Response
	}{
		{"GET", "/forged", 404, ratelimit.Response{Status: 404, Written: true, Cost: 1}},
		{"POST", "/", 405, ratelimit.Response{Status: 405, Written: true, Cost: 1}},
		{"GET", "/", 200, ratelimit.Response{Status: 200, Cost: 1}},
	} {
		*responses = nil
		w := send(r, c.method, c.path)
		if w.Code != c.status || !slices.Equal(*responses, []ratelimit.Response{c.want}) {
			t.Errorf("%s %s: status %d, settled for %+v; want %d, %+v", c.method, c.path, w.Code, *responses, c.status, c.want)
		}
		if c.status == 405 && w.Header().Get("Allow") != "GET" {
			t.Errorf("header %v", w.Header())
		}
	}
}

// A status that middleware outside chooses is set after the settlement, and is known to middleware inside.
func TestSettleOfErrors(t *testing.T) {
	failed := errors.New("failed")
	answer := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(502, gin.H{})
		}
	}
	for _, outside := range []bool{false, true} {
		policy, got := settling()
		limits := newLimits(t, ratelimit.Config{}, ginratelimit.Config{})
		want := ratelimit.Response{Status: 502, Written: true, Bytes: 2, Cost: 1}
		layers := []gin.HandlerFunc{limits.Limit(policy), answer}
		if outside {
			want = ratelimit.Response{Status: 200, Cost: 1}
			slices.Reverse(layers)
		}
		r := gin.New()
		r.Use(layers...)
		r.GET("/", func(c *gin.Context) { c.Error(failed) })
		if w := send(r, "GET", "/"); w.Code != 502 || (*got)[0] != want {
			t.Errorf("outside %t: status %d, settled for %+v, want %+v", outside, w.Code, *got, want)
		}
	}
}

// A keeping is a writer that keeps the response back, and does not tell its status.
type keeping struct {
	gin.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *keeping) WriteHeader(status int)      { w.status = status }
func (w *keeping) WriteHeaderNow()             {}
func (w *keeping) Write(p []byte) (int, error) { return w.body.Write(p) }

// The status that handlers have set counts, also if the writer outside does not tell it. A flush is no response.
func TestSettleOfStatusesThatGinDoesNotTell(t *testing.T) {
	keep := func(c *gin.Context) {
		kept := &keeping{ResponseWriter: c.Writer, status: 200}
		c.Writer = kept
		c.Next()
		kept.ResponseWriter.WriteHeader(kept.status)
		kept.ResponseWriter.Write(kept.body.Bytes())
	}
	pass := func(*gin.Context) {}
	for _, c := range []struct {
		name    string
		outside gin.HandlerFunc
		handler gin.HandlerFunc
		status  int
		want    ratelimit.Response
	}{
		{"kept back", keep, func(c *gin.Context) { c.JSON(401, gin.H{}) }, 401, ratelimit.Response{Status: 401, Written: true, Cost: 1}},
		{"kept back, without a body", keep, func(c *gin.Context) { c.Status(401) }, 401, ratelimit.Response{Status: 401, Written: true, Cost: 1}},
		{"set too late", pass, func(c *gin.Context) { c.String(200, "hi"); c.Status(401) }, 200, ratelimit.Response{Status: 200, Written: true, Bytes: 2, Cost: 1}},
		{"only flushed", pass, func(c *gin.Context) { c.Writer.Flush() }, 200, ratelimit.Response{Status: 200, Cost: 1}},
		{"flushed and written", pass, func(c *gin.Context) { c.Writer.Flush(); c.Writer.WriteString("hi") }, 200, ratelimit.Response{Status: 200, Written: true, Bytes: 2, Cost: 1}},
		{"a status that gin ignores", pass, func(c *gin.Context) { c.Status(-1) }, 200, ratelimit.Response{Status: 200, Cost: 1}},
	} {
		policy, got := settling()
		limits := newLimits(t, ratelimit.Config{}, ginratelimit.Config{})
		r := gin.New()
		r.GET("/", c.outside, limits.Limit(policy), c.handler)
		if w := send(r, "GET", "/"); w.Code != c.status || (*got)[0] != c.want {
			t.Errorf("%s: status %d, settled for %+v; want %d, %+v", c.name, w.Code, *got, c.status, c.want)
		}
	}
}

// A status that was sent before the connection was taken over is known, and 0 if there was none.
func TestStatusOfAConnectionThatWasTakenOver(t *testing.T) {
	for _, status := range []int{0, http.StatusSwitchingProtocols} {
		responses := make(chan ratelimit.Response, 1)
		policy := everybody("api", 10)
		policy.Settle = func(_ *http.Request, response ratelimit.Response) int64 {
			responses <- response
			return 1
		}
		limits := newLimits(t, ratelimit.Config{}, ginratelimit.Config{})
		r := gin.New()
		r.GET("/", limits.Limit(policy), func(c *gin.Context) {
			if status != 0 { // as github.com/coder/websocket does
				c.Writer.WriteHeader(status)
				c.Writer.WriteHeaderNow()
			}
			conn, _, err := http.NewResponseController(c.Writer).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		})
		server := httptest.NewServer(r)
		if response, err := http.Get(server.URL); err == nil {
			response.Body.Close()
		}
		server.Close()
		if got, want := <-responses, (ratelimit.Response{Status: status, Written: status != 0, Hijacked: true, Cost: 1}); got != want {
			t.Errorf("settled for %+v, want %+v", got, want)
		}
	}
}

// A redirect to the path with a slash, or without, runs no middleware.
func TestRedirectsAreLimitedOnlyAroundTheEngine(t *testing.T) {
	api := everybody("api", 10)
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{api}}, ginratelimit.Config{})
	r := gin.New()
	r.Use(limits.Handler())
	r.GET("/items/", func(*gin.Context) {})
	if w := send(r, "GET", "/items"); w.Code != 301 || remaining(t, limits, api) != 10 {
		t.Errorf("status %d, %d left", w.Code, remaining(t, limits, api))
	}
	if w := send(limits.Limiter.Handler(r), "GET", "/items"); w.Code != 301 || remaining(t, limits, api) != 9 {
		t.Errorf("around the engine: status %d, %d left", w.Code, remaining(t, limits, api))
	}
}

func TestHandleContextChargesAgain(t *testing.T) {
	api := everybody("api", 10)
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{api}}, ginratelimit.Config{})
	r := gin.New()
	r.Use(limits.Handler())
	r.GET("/old", func(c *gin.Context) {
		c.Request.URL.Path = "/new"
		r.HandleContext(c)
	})
	r.GET("/new", func(c *gin.Context) { c.String(200, "new") })
	if w := send(r, "GET", "/old"); w.Body.String() != "new" || remaining(t, limits, api) != 8 {
		t.Errorf("body %q, %d left, want 8", w.Body, remaining(t, limits, api))
	}
}

// A gin.Context reaches the values of its request only with ContextWithFallback. The decision stays in its copies.
func TestContexts(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 10)}}, ginratelimit.Config{})
		r := gin.New()
		r.ContextWithFallback = fallback
		r.Use(limits.Handler())
		r.GET("/", func(c *gin.Context) {
			if _, ok := ratelimit.FromContext(c); ok != fallback {
				t.Errorf("fallback %t: ratelimit.FromContext(c) is %t", fallback, ok)
			}
			if _, ok := ginratelimit.FromContext(c); !ok {
				t.Error("FromContext finds nothing")
			}
			if _, ok := ginratelimit.FromContext(c.Copy()); !ok {
				t.Error("FromContext finds nothing in a copy")
			}
		})
		send(r, "GET", "/")
	}
}

// What stands around gin sees the pattern of the route, and none of a path that has none.
func TestPatternOutside(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 2)}}, ginratelimit.Config{})
	r := gin.New()
	r.Use(limits.Handler())
	r.GET("/v1/items/:id", func(c *gin.Context) {})
	inside := ""
	r.NoRoute(func(c *gin.Context) { inside = c.Request.Pattern })
	mux := http.NewServeMux()
	mux.Handle("/v1/", r)
	for _, c := range []struct {
		h          http.Handler
		path, want string
	}{
		{r, "/v1/items/5", "GET /v1/items/:id"},
		{r, "/forged", ""},
		{r, "/denied", ""},
		{mux, "/v1/denied", "/v1/"},
	} {
		request := httptest.NewRequest("GET", c.path, nil)
		c.h.ServeHTTP(httptest.NewRecorder(), request)
		if request.Pattern != c.want || inside != "" {
			t.Errorf("%s: pattern %q, and %q inside; want %q", c.path, request.Pattern, inside, c.want)
		}
	}
}

// What a middleware outside has put into c.Writer is there again when the limiter has returned.
func TestWriterIsRestored(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 1)}}, ginratelimit.Config{})
	r := gin.New()
	r.Use(func(c *gin.Context) {
		before := &wrapped{ResponseWriter: c.Writer}
		c.Writer = before
		c.Next()
		if c.Writer != gin.ResponseWriter(before) {
			t.Errorf("c.Writer is a %T", c.Writer)
		}
	}, limits.Handler())
	r.GET("/", func(*gin.Context) {})
	for range 2 {
		send(r, "GET", "/")
	}
}

// gin goes on with the next handler if middleware outside recovers and does not abort. A limiter that panics has let
// nothing through.
func TestPanicsLetNothingThrough(t *testing.T) {
	unlucky := func(*http.Request) (string, error) { panic("unlucky") }
	for name, cfg := range map[string]ratelimit.Config{
		"key":  {Policies: []ratelimit.Policy{{Name: "api", Key: unlucky, Limit: ratelimit.PerHour(1)}}},
		"Deny": {Policies: []ratelimit.Policy{everybody("api", 1)}, Deny: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("unlucky") })},
	} {
		limits := newLimits(t, cfg, ginratelimit.Config{})
		limits.Take(t.Context(), everybody("api", 1), "static:everybody", 1)
		r := gin.New()
		r.Use(func(c *gin.Context) {
			defer func() {
				if recover() != nil {
					c.Status(500)
				}
			}()
			c.Next()
		}, limits.Handler())
		r.GET("/", func(*gin.Context) { t.Errorf("%s: the handler was called", name) })
		if w := send(r, "GET", "/"); w.Code != 500 {
			t.Errorf("%s: status %d", name, w.Code)
		}
	}
}

// With Errors, middleware outside finds a private error and the status, and nothing is written before.
func TestErrors(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 1)}}, ginratelimit.Config{Errors: true})
	handled := 0
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		if last := c.Errors.Last(); c.IsAborted() {
			handled++
			if !last.IsType(gin.ErrorTypePrivate) || c.Writer.Status() != 429 || c.Writer.Written() {
				t.Errorf("error %v, status %d, written %t", last, c.Writer.Status(), c.Writer.Written())
			}
		}
	}, limits.Handler())
	r.GET("/", func(*gin.Context) {})
	send(r, "GET", "/")
	if w := send(r, "GET", "/"); handled != 1 || w.Body.Len() > 0 {
		t.Errorf("handled %d, body %q", handled, w.Body)
	}
}

// gin's own logger shows the status of a denial.
func TestLogger(t *testing.T) {
	var log bytes.Buffer
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 1)}}, ginratelimit.Config{})
	r := gin.New()
	r.Use(gin.LoggerWithConfig(gin.LoggerConfig{
		Output: &log,
		Formatter: func(p gin.LogFormatterParams) string {
			return fmt.Sprintln(p.StatusCode, p.BodySize > 0)
		},
	}), limits.Handler())
	r.GET("/", func(c *gin.Context) { c.String(200, "ok") })
	send(r, "GET", "/")
	send(r, "GET", "/")
	if got := log.String(); got != "200 true\n429 true\n" {
		t.Errorf("logged %q", got)
	}
}

// Admit works in handlers, whose writer is not the limiter's own.
func TestAdmit(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 10)}}, ginratelimit.Config{Errors: true})
	r := gin.New()
	r.Use(limits.Handler())
	r.GET("/", func(c *gin.Context) {
		if limits.Admit(c.Writer, c.Request, ratelimit.Charge{Policy: everybody("user", 1), Key: "user:ann"}) {
			c.String(200, "ok")
		}
	})
	for _, want := range []int{200, 429} {
		w := send(r, "GET", "/")
		if w.Code != want || w.Body.Len() == 0 || w.Header().Get("X-Ratelimit-Remaining") != "0" {
			t.Errorf("status %d, header %v, body %q; want %d", w.Code, w.Header(), w.Body, want)
		}
	}
}

func TestMistakesPanicWhereTheyAreMade(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{}, ginratelimit.Config{})
	ratetest.CheckPanic(t, func() { ginratelimit.New(nil, ginratelimit.Config{}) }, "ginratelimit: New: limiter: must not be nil")
	ratetest.CheckPanic(t, func() { limits.Handler() }, "Config.Policies is empty")
	ratetest.CheckPanic(t, func() { limits.Limit() }, "policies: must not be empty")
	ratetest.CheckPanic(t, func() { limits.Limit(ratelimit.Policy{Name: "api", Limit: ratelimit.PerMinute(1)}) }, "Key: must be set")
}
