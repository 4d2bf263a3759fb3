// Code generated from stream_test.go of echo v4 by go test -update there; DO NOT EDIT.

package echoratelimit_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

// The first part arrives before the handler has ended, also with compression on either side of the limiter.
func TestStreaming(t *testing.T) {
	zip := middleware.Gzip()
	for name, mount := range map[string]func(m echo.MiddlewareFunc) []echo.MiddlewareFunc{
		"plain":       func(m echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{m} },
		"gzip around": func(m echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{zip, m} },
		"gzip inside": func(m echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{m, zip} },
	} {
		t.Run(name, func(t *testing.T) {
			policy, got := responses()
			limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
			arrived := make(chan bool)
			e := newEcho()
			e.GET("/", func(c *echo.Context) error {
				var w http.ResponseWriter = c.Response()
				if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Errorf("SetWriteDeadline: %v", err)
				}
				io.WriteString(w, "first\n")
				w.(http.Flusher).Flush()
				<-arrived
				io.WriteString(w, "last\n")
				return nil
			}, mount(limits.Limit(policy))...)
			c := serve(t, e)
			r, _ := http.NewRequestWithContext(t.Context(), "GET", c.base, nil)
			r.Header.Set("Accept-Encoding", "gzip")
			response, err := c.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body := io.Reader(response.Body)
			if name != "plain" {
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			lines := bufio.NewReader(body)
			if line, err := lines.ReadString('\n'); line != "first\n" {
				t.Errorf("%q, %v", line, err)
			}
			close(arrived)
			if rest, err := io.ReadAll(lines); string(rest) != "last\n" || err != nil {
				t.Errorf("%q, %v", rest, err)
			}
			settled := next(t, got)
			if settled.Status != 200 || !settled.Written || name != "gzip inside" && settled.Bytes != 11 || settled.Bytes == 0 {
				t.Errorf("settled by %+v", settled)
			}
		})
	}
}

// An error is answered through the compression around the limiter, once.
func TestErrorsWithGzip(t *testing.T) {
	zip := middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1})
	for _, inside := range []bool{false, true} {
		limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
		ms := []echo.MiddlewareFunc{zip, limits.Limit(failures())}
		if inside {
			ms[0], ms[1] = ms[1], ms[0]
		}
		e := loginEcho()
		e.GET("/", func(c *echo.Context) error { return errPassword }, ms...)
		c := serve(t, e)
		for _, status := range []int{401, 401, 429} {
			r := c.send("GET", "/") // the client undoes gzip
			if r.status != status {
				t.Fatalf("inside %t: status %d, want %d: %s", inside, r.status, status, r.body)
			}
			if status == 401 {
				wantCount(t, r.body, "try again", 1)
			}
		}
	}
}

func TestAConnectionThatIsTakenOver(t *testing.T) {
	policy, got := responses()
	var handled atomic.Int32
	settle := policy.Settle
	policy.Settle = func(r *http.Request, response ratelimit.Response) int64 {
		if handled.Load() > 0 {
			t.Error("the error handler was called for a connection that is taken over")
		}
		return settle(r, response)
	}
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := newEcho()
	onError(e, func(*echo.Context, error) { handled.Add(1) }) // echo calls it later
	e.GET("/", hijack, limits.Limit(policy))
	e.GET("/old", func(c *echo.Context) error { // as older libraries do
		conn, _, err := http.ResponseWriter(c.Response()).(http.Hijacker).Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		c.String(http.StatusBadGateway, "too late")
		return errPassword
	}, limits.Limit(policy))
	c := serve(t, e)
	for _, path := range []string{"/", "/old"} {
		if r := c.upgrade(path); !strings.HasPrefix(r.body, "HTTP/1.1 101") {
			t.Errorf("%s: %q", path, r.body)
		}
		if r := next(t, got); r.Status != 0 || r.Written || !r.Hijacked {
			t.Errorf("%s: settled by %+v", path, r)
		}
	}
}

// Middleware of net/http inside the limiter may answer otherwise than the handler.
func TestMiddlewareInsideThatAnswersOtherwise(t *testing.T) {
	otherwise := echo.WrapMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(teapot{w}, r) })
	})
	policy, got := responses()
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := newEcho()
	e.GET("/", hello, limits.Limit(policy), otherwise)
	serve(t, e).wantStatuses("GET", "/", 418)
	if r := next(t, got); r.Status != 418 || r.Bytes != 5 {
		t.Errorf("settled by %+v", r)
	}
}

type teapot struct{ http.ResponseWriter }

func (w teapot) WriteHeader(int) { w.ResponseWriter.WriteHeader(http.StatusTeapot) }

// An informational response is not the answer.
func TestEarlyHints(t *testing.T) {
	policy, got := responses()
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := newEcho()
	e.GET("/", func(c *echo.Context) error {
		c.Response().WriteHeader(http.StatusEarlyHints)
		return c.String(http.StatusForbidden, "no") // echo sends no status after the first
	}, limits.Limit(policy))
	r := serve(t, e).send("GET", "/")
	if settled := next(t, got); settled.Status != r.status {
		t.Errorf("status %d, settled by %+v", r.status, settled)
	}
}

// A flush that the server does not support sends nothing: the handler may still fail.
func TestAFlushThatIsNotSupported(t *testing.T) {
	policy, got := responses()
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := loginEcho()
	e.GET("/", func(c *echo.Context) error {
		defer func() { recover() }() // of echo
		http.NewResponseController(c.Response()).Flush()
		return nil
	}, limits.Limit(policy), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return errors.Join(next(c), errPassword) }
	})
	w := httptest.NewRecorder()
	e.ServeHTTP(struct{ http.ResponseWriter }{w}, httptest.NewRequest("GET", "/", nil))
	if r := next(t, got); r.Status != 401 || w.Code != 401 {
		t.Errorf("status %d, settled by %+v", w.Code, r)
	}
}
