// Code generated from main_test.go of echo v4 by go test -update there; DO NOT EDIT.

package echoratelimit_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLimits returns a limiter for echo.
func newLimits(t testing.TB, cfg ratelimit.Config, adapter echoratelimit.Config) *echoratelimit.Limiter {
	t.Helper()
	limiter := ratelimit.Must(ratelimit.New(cfg))
	t.Cleanup(func() { limiter.Close() })
	return echoratelimit.New(limiter, adapter)
}

// A client sends requests to one server over TCP.
type client struct {
	t    *testing.T
	http *http.Client
	base string
}

// serve returns a client of h.
func serve(t *testing.T, h http.Handler) *client {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(server.Close)
	c := server.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{t, c, server.URL}
}

// A reply is a response with its whole body. Its status is 0 if the server closed the connection instead.
type reply struct {
	status int
	header http.Header
	body   string
}

func (c *client) send(method, path string) reply {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return reply{}
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(body)}
}

// wantStatuses sends requests to a path.
func (c *client) wantStatuses(method, path string, want ...int) {
	c.t.Helper()
	for i, status := range want {
		if got := c.send(method, path); got.status != status {
			c.t.Fatalf("request %d to %s %s: status %d, want %d: %s", i+1, method, path, got.status, status, got.body)
		}
	}
}

// anyone is a policy with one bucket for all requests.
func anyone(name string, limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.Static("all"), Limit: limit}
}

// failures is a policy for failed logins: two at once.
func failures() ratelimit.Policy {
	p := anyone("login", ratelimit.PerHour(2))
	p.Settle = ratelimit.FailedLogins
	return p
}

// responses returns a policy with a Settle that passes on what it gets.
func responses() (ratelimit.Policy, <-chan ratelimit.Response) {
	got := make(chan ratelimit.Response, 100)
	p := anyone("settled", ratelimit.PerHour(100))
	p.Settle = func(_ *http.Request, r ratelimit.Response) int64 {
		got <- r
		return r.Cost
	}
	return p, got
}

// next returns what a policy of responses has got.
func next[T any](t *testing.T, got <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-got:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing in 10 seconds")
	}
	return v
}

// wantCount checks how often a part is in a text.
func wantCount(t *testing.T, text, part string, want int) {
	t.Helper()
	if got := strings.Count(text, part); got != want {
		t.Errorf("%q is in %q %d times, want %d", part, text, got, want)
	}
}

// hijack takes over the connection, and answers 101 on it.
func hijack(c *echo.Context) error {
	conn, _, err := http.NewResponseController(c.Response()).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	return err
}

// upgrade sends a request that is answered 101.
func (c *client) upgrade(path string) reply {
	c.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.base, "http://"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	text, _ := io.ReadAll(conn)
	return reply{body: string(text)}
}

// silent logs nothing.
var silent = slog.New(slog.DiscardHandler)
