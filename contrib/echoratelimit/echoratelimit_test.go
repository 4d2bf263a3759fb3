package echoratelimit_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

func TestNewNeedsALimiter(t *testing.T) {
	ratetest.CheckPanic(t, func() { echoratelimit.New(nil, echoratelimit.Config{}) }, "limiter: must not be nil")
}

// errPassword is an error that only the error handler of an application knows.
var errPassword = errors.New("wrong password")

// loginEcho returns an echo whose error handler answers errPassword with 401.
func loginEcho() *echo.Echo {
	e := newEcho()
	onError(e, func(c echo.Context, err error) {
		if errors.Is(err, errPassword) && !committed(c) {
			err = echo.NewHTTPError(http.StatusUnauthorized, "try again")
		}
		defaultHandler(c, err)
	})
	return e
}

var recovering = middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})

// The status counts that the client sees, whatever way it takes.
func TestASettleSeesTheFinalStatus(t *testing.T) {
	flush := func(c echo.Context) error { return http.NewResponseController(c.Response()).Flush() }
	otherwise := echo.WrapMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(teapot{w}, r) })
	})
	for name, tt := range map[string]struct {
		inside  echo.MiddlewareFunc
		handler echo.HandlerFunc
		status  int // for the client, 0 if the connection is closed
		want    ratelimit.Response
	}{
		"an HTTPError": {
			handler: func(c echo.Context) error { return echo.NewHTTPError(401, "no") },
			status:  401, want: ratelimit.Response{Status: 401, Written: true, Bytes: 17},
		},
		"an error after the response": {
			handler: func(c echo.Context) error { return errors.Join(c.String(200, "ok"), errPassword) },
			status:  200, want: ratelimit.Response{Status: 200, Written: true, Bytes: 2},
		},
		"an error after a flush": {
			handler: func(c echo.Context) error { return errors.Join(flush(c), errPassword) },
			status:  200, want: ratelimit.Response{Status: 200},
		},
		"an abort that is recovered": {
			inside:  recovering,
			handler: func(c echo.Context) error { panic(http.ErrAbortHandler) },
			want:    ratelimit.Response{Panicked: true},
		},
		"middleware of net/http that answers otherwise": {
			inside:  otherwise,
			handler: hello,
			status:  418, want: ratelimit.Response{Status: 418, Written: true, Bytes: 5},
		},
		"early hints, after which echo sends no other status": {
			handler: func(c echo.Context) error {
				c.Response().WriteHeader(http.StatusEarlyHints)
				return c.String(http.StatusForbidden, "no")
			},
			status: 200, want: ratelimit.Response{Status: 200, Written: true, Bytes: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := loginEcho()
			policy, got := responses()
			e.Use(newLimits(t, ratelimit.Config{}, echoratelimit.Config{}).Limit(policy))
			if tt.inside != nil {
				e.Use(tt.inside)
			}
			e.GET("/", tt.handler)
			if r := send(e, "GET", "/"); r.status != tt.status {
				t.Errorf("status %d, want %d: %s", r.status, tt.status, r.body)
			}
			tt.want.Cost = 1
			if *got != tt.want {
				t.Errorf("settled by %+v, want %+v", *got, tt.want)
			}
		})
	}
}

type teapot struct{ http.ResponseWriter }

func (w teapot) WriteHeader(int) { w.ResponseWriter.WriteHeader(http.StatusTeapot) }

// The limiter calls no error handler for a connection that was taken over. echo does it later.
func TestAnErrorAfterTheConnectionIsTakenOver(t *testing.T) {
	policy := anyone("settled", ratelimit.PerHour(100))
	var handled atomic.Int32
	settled := make(chan ratelimit.Response, 1)
	policy.Settle = func(_ *http.Request, r ratelimit.Response) int64 {
		if handled.Load() > 0 {
			t.Error("the error handler was called")
		}
		settled <- r
		return r.Cost
	}
	e := newEcho()
	onError(e, func(echo.Context, error) { handled.Add(1) })
	e.GET("/", func(c echo.Context) error {
		conn, _, err := http.ResponseWriter(c.Response()).(http.Hijacker).Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		c.String(http.StatusBadGateway, "too late")
		return errPassword
	}, newLimits(t, ratelimit.Config{}, echoratelimit.Config{}).Limit(policy))
	server := httptest.NewUnstartedServer(e)
	server.Config.ErrorLog = quiet
	server.Start()
	defer server.Close()
	if response, err := http.Get(server.URL); err == nil {
		response.Body.Close()
	}
	if r := <-settled; r.Status != 0 || r.Written || !r.Hijacked {
		t.Errorf("settled by %+v", r)
	}
}

// A flush that the server does not support sends nothing: the handler may still fail.
func TestAFlushThatIsNotSupported(t *testing.T) {
	policy, got := responses()
	e := loginEcho()
	e.GET("/", func(c echo.Context) error {
		defer func() { recover() }() // of echo
		http.NewResponseController(c.Response()).Flush()
		return nil
	}, newLimits(t, ratelimit.Config{}, echoratelimit.Config{}).Limit(policy), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return errors.Join(next(c), errPassword) }
	})
	w := httptest.NewRecorder()
	e.ServeHTTP(struct{ http.ResponseWriter }{w}, httptest.NewRequest("GET", "/", nil))
	if got.Status != 401 || w.Code != 401 {
		t.Errorf("status %d, settled by %+v", w.Code, *got)
	}
}
