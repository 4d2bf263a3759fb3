// Code generated from refusal_test.go of echo v4 by go test -update there; DO NOT EDIT.

package echoratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A brokenStore fails.
type brokenStore struct{ store.Store }

func (brokenStore) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("down")
}

// failing returns a key function that fails.
func failing(err error) ratelimit.KeyFunc {
	return func(*http.Request) (string, error) { return "", err }
}

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		key                   ratelimit.KeyFunc
		store                 store.Store
		status                int
		is                    error
		retryAfter, remaining string
	}{
		"denied":        {key: ratelimit.Static("all"), status: 429, retryAfter: "3600", remaining: "0"},
		"no key":        {key: failing(ratelimit.ErrNoKey), status: 403, is: ratelimit.ErrNoKey},
		"bad request":   {key: failing(ratelimit.ErrBadRequest), status: 400, is: ratelimit.ErrBadRequest},
		"closed":        {key: ratelimit.Static("all"), store: brokenStore{}, status: 503, retryAfter: "5"},
		"error of echo": {key: failing(echo.NewHTTPError(http.StatusOK, "not the key's to say")), status: 503, retryAfter: "5"},
	} {
		for _, byEcho := range []bool{false, true} {
			t.Run(fmt.Sprint(name, byEcho), func(t *testing.T) {
				limits := newLimits(t, ratelimit.Config{Logger: silent, Store: tt.store, Policies: []ratelimit.Policy{
					{Name: "p", Key: tt.key, Limit: ratelimit.PerHour(1), FailClosed: true},
				}}, echoratelimit.Config{Errors: byEcho})
				e := newEcho()
				type refusal struct {
					status  int
					is      bool
					decided bool
				}
				handled, outside := make(chan refusal, 10), make(chan refusal, 10)
				onError(e, func(c *echo.Context, err error) {
					d, ok := echoratelimit.FromContext(c)
					handled <- refusal{statusOf(err), errors.Is(err, tt.is), ok && !d.Allowed}
					if strings.Contains(err.Error(), "nil") {
						t.Errorf("error %q", err)
					}
					defaultHandler(c, err)
				})
				e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // a logger
					return func(c *echo.Context) error {
						err := next(c)
						d, ok := echoratelimit.FromContext(c)
						outside <- refusal{statusOf(err), errors.Is(err, tt.is), ok && !d.Allowed}
						return err
					}
				})
				e.Use(limits.Handler())
				e.GET("/", hello)
				c := serve(t, e)
				want := refusal{tt.status, tt.is != nil, tt.status == 429}
				if tt.status == 429 {
					c.wantStatuses("GET", "/", 200)
					next(t, outside)
				}
				r := c.send("GET", "/")
				if r.status != tt.status {
					t.Errorf("status %d, want %d", r.status, tt.status)
				}
				for name, value := range map[string]string{
					"Retry-After":           tt.retryAfter,
					"X-RateLimit-Remaining": tt.remaining,
					"Cache-Control":         "no-store",
				} {
					if got := strings.Join(r.header.Values(name), "|"); got != value {
						t.Errorf("%s %q, want %q", name, got, value)
					}
				}
				seen := next(t, outside)
				if !byEcho {
					if seen.decided != want.decided {
						t.Errorf("middleware around it saw a decision: %t", seen.decided)
					}
					if len(handled) > 0 {
						t.Errorf("the error handler was called, with %+v", <-handled)
					}
					if !strings.Contains(r.header.Get("Content-Type"), "problem+json") {
						t.Errorf("body %q", r.body)
					}
					return
				}
				if seen != want {
					t.Errorf("middleware around it saw %+v, want %+v", seen, want)
				}
				if got := next(t, handled); got != want {
					t.Errorf("the error handler saw %+v, want %+v", got, want)
				}
				if want := fmt.Sprintf(`{"message":%q}`, http.StatusText(tt.status)); strings.TrimSpace(r.body) != want {
					t.Errorf("body %q, want %q", r.body, want)
				}
				if r := c.send("HEAD", "/"); r.body != "" {
					t.Errorf("a HEAD has the body %q", r.body)
				}
			})
		}
	}
}

// The error handler of an application can say what it likes.
func TestTheErrorHandlerAnswersADenial(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{Errors: true})
	e := newEcho()
	onError(e, func(c *echo.Context, err error) {
		if d, ok := echoratelimit.FromContext(c); ok && !d.Allowed {
			c.String(statusOf(err), "slow down: "+d.Results[0].Policy)
			return
		}
		defaultHandler(c, err)
	})
	e.GET("/", hello, limits.Limit(anyone("greetings", ratelimit.PerHour(1))))
	c := serve(t, e)
	c.wantStatuses("GET", "/", 200)
	if r := c.send("GET", "/"); r.status != 429 || r.body != "slow down: greetings" {
		t.Errorf("%d %q", r.status, r.body)
	}
}

// An inner refusal is how the outer policy's request was answered.
func TestAnInnerRefusalSettlesTheOuter(t *testing.T) {
	for _, byEcho := range []bool{false, true} {
		outer, got := responses()
		limits := newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{outer}}, echoratelimit.Config{Errors: byEcho})
		e := newEcho()
		e.Use(limits.Handler())
		e.GET("/", hello, limits.Limit(anyone("inner", ratelimit.PerHour(1))))
		c := serve(t, e)
		for _, status := range []int{200, 429} {
			r := c.send("GET", "/")
			if settled := next(t, got); r.status != status || settled.Status != status || !settled.Written {
				t.Errorf("errors %t: status %d, settled by %+v, want %d", byEcho, r.status, settled, status)
			}
			if limit := r.header.Values("X-RateLimit-Limit"); len(limit) != 1 || limit[0] != "1" {
				t.Errorf("X-RateLimit-Limit %q", limit)
			}
		}
	}
}

// An error reaches middleware around the limiter also if it is answered already: a transaction must not be committed.
func TestMiddlewareAroundTheLimiterSeesErrors(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	for _, policy := range []ratelimit.Policy{anyone("kept", ratelimit.PerHour(10)), failures()} {
		e := loginEcho()
		var seen error
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				seen = next(c)
				return seen
			}
		})
		e.GET("/", func(c *echo.Context) error { return errPassword }, limits.Limit(policy))
		r := serve(t, e).send("GET", "/")
		if r.status != 401 || !errors.Is(seen, errPassword) {
			t.Errorf("policy %s: status %d, error %v", policy.Name, r.status, seen)
		}
		wantCount(t, r.body, "try again", 1)
	}
}

// Only a policy with a Settle must know the status when the handler has returned. Then middleware that replaces errors
// comes too late around the limiter.
func TestMiddlewareThatReplacesErrors(t *testing.T) {
	replacing := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			if err != nil {
				err = echo.NewHTTPError(http.StatusTeapot, "replaced")
			}
			return err
		}
	}
	settled, got := responses()
	for name, tt := range map[string]struct {
		policy ratelimit.Policy
		inside bool
		status int
	}{
		"around a policy":              {anyone("p", ratelimit.PerHour(10)), false, 418},
		"around a policy that settles": {settled, false, 500},
		"inside of it":                 {settled, true, 418},
	} {
		t.Run(name, func(t *testing.T) {
			limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
			ms := []echo.MiddlewareFunc{replacing, limits.Limit(tt.policy)}
			if tt.inside {
				ms[0], ms[1] = ms[1], ms[0]
			}
			e := newEcho()
			e.GET("/", func(c *echo.Context) error { return errors.New("?") }, ms...)
			serve(t, e).wantStatuses("GET", "/", tt.status)
			if tt.policy.Settle != nil {
				if r := next(t, got); r.Status != tt.status {
					t.Errorf("settled by %+v, want status %d", r, tt.status)
				}
			}
		})
	}
}

// echo calls its error handler again for an error that middleware has passed to it, and some do not look whether the
// response is committed. The client gets one body.
func TestAnErrorHandlerThatAnswersTwice(t *testing.T) {
	for name, around := range map[string][]echo.MiddlewareFunc{
		"plain":        nil,
		"gzip":         {middleware.Gzip()},
		"Recover":      {recovering},
		"net/http's":   {passing},
		"two limiters": {newLimits(t, ratelimit.Config{Policies: []ratelimit.Policy{failures()}}, echoratelimit.Config{}).Handler()},
	} {
		t.Run(name, func(t *testing.T) {
			limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
			e := newEcho()
			var calls atomic.Int32
			onError(e, func(c *echo.Context, err error) {
				calls.Add(1)
				c.JSON(http.StatusUnauthorized, "answered")
			})
			e.GET("/", func(c *echo.Context) error { return errPassword }, append(around, limits.Limit(failures()))...)
			c := serve(t, e)
			for _, status := range []int{401, 401, 429} {
				r := c.send("GET", "/")
				if r.status != status {
					t.Fatalf("status %d, want %d", r.status, status)
				}
				if status == 401 && r.body != "\"answered\"\n" {
					t.Errorf("body %q", r.body)
				}
			}
			if n := calls.Load(); n != 4 {
				t.Errorf("the error handler was called %d times, want twice for each error", n)
			}
		})
	}
}

// What was not answered is not complete.
func TestAnErrorHandlerThatAnswersLater(t *testing.T) {
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := newEcho()
	called := false
	onError(e, func(c *echo.Context, err error) {
		if called {
			c.String(http.StatusUnauthorized, "answered")
		}
		called = true
	})
	e.GET("/", func(c *echo.Context) error { return errPassword }, limits.Limit(failures()))
	if r := serve(t, e).send("GET", "/"); r.status != 401 || r.body != "answered" {
		t.Errorf("status %d, body %q", r.status, r.body)
	}
}

// An error handler that fails is a panic of the handler.
func TestAnErrorHandlerThatPanics(t *testing.T) {
	policy, got := responses()
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := newEcho()
	onError(e, func(*echo.Context, error) { panic("no") })
	e.GET("/", func(c *echo.Context) error { return errPassword }, limits.Limit(policy))
	if r := serve(t, e).send("GET", "/"); r.status != 0 {
		t.Errorf("status %d", r.status)
	}
	if r := next(t, got); !r.Panicked || r.Written {
		t.Errorf("settled by %+v", r)
	}
}

// echo.WrapMiddleware is the way that does not work. It shows what this package is for.
func TestWrapMiddlewareDoesNotSeeErrors(t *testing.T) {
	policy, got := responses()
	limits := newLimits(t, ratelimit.Config{}, echoratelimit.Config{})
	e := loginEcho()
	failed := func(c *echo.Context) error { return errPassword }
	e.GET("/wrapped", failed, echo.WrapMiddleware(limits.Limiter.Limit(policy)))
	e.GET("/adapted", failed, limits.Limit(policy))
	c := serve(t, e)
	for path, want := range map[string]int{"/wrapped": 200, "/adapted": 401} {
		c.wantStatuses("GET", path, 401)
		if r := next(t, got); r.Status != want {
			t.Errorf("%s: settled by %+v, want status %d", path, r, want)
		}
	}
}

// A client that leaves while it waits is no error of the server.
func TestAClientThatLeaves(t *testing.T) {
	p := anyone("p", ratelimit.PerHour(1))
	p.MaxWait = 2 * time.Hour
	waits := make(chan bool, 10)
	limits := newLimits(t, ratelimit.Config{Logger: silent}, echoratelimit.Config{Errors: true})
	e := newEcho()
	handled := make(chan int, 10)
	onError(e, func(_ *echo.Context, err error) { handled <- statusOf(err) })
	e.GET("/", hello, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			waits <- true
			return next(c)
		}
	}, limits.Limit(p))
	c := serve(t, e)
	c.wantStatuses("GET", "/", 200)
	next(t, waits)
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", c.base, nil)
	left := make(chan error)
	go func() {
		_, err := c.http.Do(r)
		left <- err
	}()
	next(t, waits)
	leave()
	<-left
	if status := next(t, handled); status != 499 {
		t.Errorf("status %d, want 499", status)
	}
}
