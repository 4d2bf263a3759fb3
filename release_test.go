package ratelimit_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// atOnce is a policy of n slots for each address.
func atOnce(name string, n int64) ratelimit.Policy {
	return perIP(name, ratelimit.Concurrency(n))
}

// free returns how many slots of p and an address are free.
func free(t *testing.T, l *ratelimit.Limiter, p ratelimit.Policy, key string) int64 {
	t.Helper()
	b, err := l.Peek(context.WithoutCancel(t.Context()), ratelimit.Policy{Name: p.Name, Limit: p.Limit}, key)
	if err != nil {
		t.Error(err)
	}
	return b.Remaining
}

// Each way in which a request can end releases its slot, after the handler and not before.
func TestASlotIsReleasedWhenItsHandlerHasReturned(t *testing.T) {
	exports := atOnce("exports", 2)
	for name, tt := range map[string]struct {
		handle http.HandlerFunc
		http2  bool
		leaves bool // the client, while the handler runs
	}{
		"return":       {handle: func(http.ResponseWriter, *http.Request) {}},
		"HTTP/2":       {handle: func(http.ResponseWriter, *http.Request) {}, http2: true},
		"panic":        {handle: func(http.ResponseWriter, *http.Request) { panic("of a test") }},
		"abort":        {handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"HTTP/2 abort": {handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http2: true},
		"Goexit":       {handle: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }},
		"103": {handle: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		}},
		"stream": {handle: func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				io.WriteString(w, "data: x\n\n")
				http.NewResponseController(w).Flush()
			}
		}},
		"disconnect":        {handle: untilClientLeft(t, exports), leaves: true},
		"HTTP/2 disconnect": {handle: untilClientLeft(t, exports), leaves: true, http2: true},
	} {
		for mount, limited := range map[string]func(*ratelimit.Limiter, http.Handler) http.Handler{
			"Handler": func(l *ratelimit.Limiter, next http.Handler) http.Handler { return l.Handler(next) },
			"Limit":   func(l *ratelimit.Limiter, next http.Handler) http.Handler { return l.Limit(exports)(next) },
		} {
			t.Run(mount+" "+name, func(t *testing.T) {
				l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{exports}})
				running, returned := make(chan int64, 1), make(chan struct{})
				next := limited(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					running <- free(t, l, exports, loopback)
					tt.handle(w, r.WithContext(context.WithValue(r.Context(), limiterKey{}, l)))
				}))
				url, client := served(t, tt.http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					next.ServeHTTP(w, r)
				}))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				go func() {
					r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
					if response, err := client.Do(r); err == nil {
						io.Copy(io.Discard, response.Body)
						response.Body.Close()
					}
				}()
				if n := <-running; n != 1 {
					t.Errorf("%d slots are free while the handler runs, want 1", n)
				}
				if tt.leaves {
					leave()
				}
				if <-returned; free(t, l, exports, loopback) != 2 {
					t.Error("the slot was not released")
				}
			})
		}
	}
}

const loopback = "ip:127.0.0.1"

type limiterKey struct{}

// untilClientLeft runs until its client has left, and a little longer.
func untilClientLeft(t *testing.T, p ratelimit.Policy) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		if n := free(t, r.Context().Value(limiterKey{}).(*ratelimit.Limiter), p, loopback); n != 1 {
			t.Errorf("%d slots are free while the handler runs, want 1", n)
		}
	}
}

// served returns the address of a server with h, and a client for it.
func served(t *testing.T, http2 bool, h http.Handler) (url string, client *http.Client) {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of panics
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

// A connection that was taken over holds the slot until it is closed and the handler has returned.
func TestAConnectionThatIsTakenOverHoldsItsSlot(t *testing.T) {
	exports := atOnce("exports", 1)
	controller := func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
		return http.NewResponseController(w).Hijack()
	}
	for name, tt := range map[string]struct {
		hijack func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error)
		around func(http.ResponseWriter) http.ResponseWriter // by middleware outside of the limiter
		end    func(conn net.Conn, closed func())
		held   bool // after the handler has returned
	}{
		"closed later":              {hijack: controller, held: true, end: func(net.Conn, func()) {}},
		"by http.Hijacker":          {hijack: func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() }, held: true, end: func(net.Conn, func()) {}},
		"by Unwrap outside":         {hijack: controller, around: func(w http.ResponseWriter) http.ResponseWriter { return unwraps{w} }, held: true, end: func(net.Conn, func()) {}},
		"panic, and closed later":   {hijack: controller, held: true, end: func(net.Conn, func()) { panic("of a test") }},
		"closed twice, then return": {hijack: controller, end: func(conn net.Conn, closed func()) { conn.Close(); conn.Close(); closed() }},
		"with NetConn and CloseWrite": {hijack: controller, held: true, end: func(conn net.Conn, _ func()) {
			if inner := conn.(interface{ NetConn() net.Conn }).NetConn(); inner.(*net.TCPConn) == nil {
				t.Error("NetConn is nil")
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, conns, returned := quiet(t), make(chan net.Conn, 1), make(chan struct{})
			next := l.Limit(exports)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := tt.hijack(w)
				if err != nil {
					t.Error(err)
					return
				}
				conns <- conn
				tt.end(conn, func() {
					if free(t, l, exports, loopback) != 0 {
						t.Error("the slot was released before the handler has returned")
					}
				})
			}))
			url, client := served(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(returned)
				if tt.around != nil {
					w = tt.around(w)
				}
				next.ServeHTTP(w, r)
			}))
			go client.Get(url)
			conn := <-conns
			<-returned
			if held := free(t, l, exports, loopback) == 0; held != tt.held {
				t.Errorf("after the handler has returned, held is %t", held)
			}
			conn.Close()
			if free(t, l, exports, loopback) != 1 {
				t.Error("the slot was not released")
			}
		})
	}
}

// unwraps is a writer whose connection only http.ResponseController finds.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }
