package ratelimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// A watched server answers by a handler behind a policy that settles, and tells of each time it did.
type watched struct {
	*httptest.Server
	settled chan ratelimit.Response
	served  chan struct{} // the limiter has returned, or panicked
}

func watch(t *testing.T, http2 bool, h http.HandlerFunc) *watched {
	t.Helper()
	w := &watched{settled: make(chan ratelimit.Response, 10), served: make(chan struct{}, 10)}
	l := newLimiter(t, ratelimit.Config{})
	p := settled("api", ratelimit.PerSecond(1000), func(_ *http.Request, r ratelimit.Response) int64 {
		w.settled <- r
		return r.Cost
	})
	limited := l.Limit(p)(h)
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer func() { w.served <- struct{}{} }()
		limited.ServeHTTP(rw, r)
	}))
	w.Config.ErrorLog = log.New(io.Discard, "", 0) // of panics
	if w.EnableHTTP2 = http2; http2 {
		w.StartTLS()
	} else {
		w.Start()
	}
	t.Cleanup(w.Close)
	return w
}

// once returns what was settled when a request has been served: once.
func (w *watched) once(t *testing.T) ratelimit.Response {
	t.Helper()
	<-w.served
	w.Close() // waits for all other handlers
	if n := len(w.settled); n != 1 {
		t.Fatalf("settled %d times, want once", n)
	}
	return <-w.settled
}

// do sends a request and reads what comes.
func (w *watched) do(t *testing.T, method string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := w.Client().Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func TestEveryRequestIsSettledOnceByWhatWasSent(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		method  string // default GET
		want    ratelimit.Response
	}{
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, "",
			ratelimit.Response{Status: 200}},
		{"early hints alone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103) }, "",
			ratelimit.Response{Status: 200}},
		{"nothing written, to a HEAD", func(http.ResponseWriter, *http.Request) {}, "HEAD",
			ratelimit.Response{Status: 200}},
		{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }, "",
			ratelimit.Response{Status: 418, Written: true}},
		{"a body", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello"); w.Write([]byte("!")) }, "",
			ratelimit.Response{Status: 200, Written: true, Bytes: 6}},
		{"a second status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) }, "",
			ratelimit.Response{Status: 201, Written: true}},
		{"a status after the body", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x"); w.WriteHeader(500) }, "",
			ratelimit.Response{Status: 200, Written: true, Bytes: 1}},
		{"early hints", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, "",
			ratelimit.Response{Status: 404, Written: true}},
		{"a body that the status forbids", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); io.WriteString(w, "lost") }, "",
			ratelimit.Response{Status: 204, Written: true}},
		{"HEAD", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "not sent") }, "HEAD",
			ratelimit.Response{Status: 200, Written: true}},
		{"a reader", func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1<<20))})
		}, "", ratelimit.Response{Status: 200, Written: true, Bytes: 1 << 20}},
		{"a reader to an assertion", func(w http.ResponseWriter, _ *http.Request) {
			if to, ok := w.(io.ReaderFrom); ok {
				to.ReadFrom(strings.NewReader("hello"))
				return
			}
			io.WriteString(w, "hello") // HTTP/2 has none
		}, "", ratelimit.Response{Status: 200, Written: true, Bytes: 5}},
		{"a reader that is empty", func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, struct{ io.Reader }{strings.NewReader("")})
			w.WriteHeader(401)
		}, "", ratelimit.Response{Status: 401, Written: true}},
		{"a reader that fails at once", func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.Copy(w, iotest.ErrReader(errors.New("broken"))); err != nil {
				w.WriteHeader(502)
			}
		}, "", ratelimit.Response{Status: 502, Written: true}},
		{"a stream", func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				io.WriteString(w, "data\n")
				w.(http.Flusher).Flush()
			}
		}, "", ratelimit.Response{Status: 200, Written: true, Bytes: 50}},
		{"a flush alone", func(w http.ResponseWriter, _ *http.Request) { http.NewResponseController(w).Flush() }, "",
			ratelimit.Response{Status: 200}},
		{"a redirect", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(304)
		}, "", ratelimit.Response{Status: 304, Written: true}},
		{"a panic", func(http.ResponseWriter, *http.Request) { panic("broken") }, "",
			ratelimit.Response{Panicked: true}},
		{"a panic after a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); panic("broken") }, "",
			ratelimit.Response{Status: 401, Written: true, Panicked: true}},
		{"a panic in a stream", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "data\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "", ratelimit.Response{Status: 200, Written: true, Bytes: 5, Panicked: true}},
		{"a panic after a flush alone", func(w http.ResponseWriter, _ *http.Request) {
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "", ratelimit.Response{Status: 200, Panicked: true}},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: " over HTTP/2"}[http2], func(t *testing.T) {
				server := watch(t, http2, tt.handler)
				method := tt.method
				if method == "" {
					method = "GET"
				}
				server.do(t, method)
				tt.want.Cost = 1
				if got := server.once(t); got != tt.want {
					t.Errorf("got %+v, want %+v", got, tt.want)
				}
			})
		}
	}
}

func TestAConnectionThatIsTakenOverIsSettledOnce(t *testing.T) {
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"by the controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
		"by assertion": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
	} {
		t.Run(name, func(t *testing.T) {
			server := watch(t, false, func(w http.ResponseWriter, _ *http.Request) {
				conn, rw, err := hijack(w)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				rw.WriteString("HTTP/1.1 418 I'm a teapot\r\nContent-Length: 3\r\nConnection: close\r\n\r\ntea")
				rw.Flush()
				if _, _, err := hijack(w); err == nil {
					t.Error("taken over twice")
				}
				http.Error(w, "not sent", http.StatusUnauthorized)
			})
			if status, body, err := server.do(t, "GET"); status != 418 || body != "tea" || err != nil {
				t.Errorf("%d %q, %v", status, body, err)
			}
			if got, want := server.once(t), (ratelimit.Response{Cost: 1, Hijacked: true}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestARequestWhoseClientLeavesIsSettledOnce(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		server := watch(t, http2, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "data\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		response.Body.Close()
		if got, want := server.once(t), (ratelimit.Response{Status: 200, Written: true, Bytes: 5, Cost: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// A handler may also end its goroutine, as t.FailNow does.
func TestAHandlerThatEndsItsGoroutineIsSettled(t *testing.T) {
	settledAt := make(chan ratelimit.Response, 2)
	h := newLimiter(t, ratelimit.Config{}).Limit(settled("api", ratelimit.PerHour(9), func(_ *http.Request, r ratelimit.Response) int64 {
		settledAt <- r
		return 0
	}))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		get(h)
	}()
	<-ended
	if n := len(settledAt); n != 1 {
		t.Fatalf("settled %d times, want once", n)
	}
	if got, want := <-settledAt, (ratelimit.Response{Cost: 1, Panicked: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAWriterThatIsWatchedCanDoWhatTheServersCan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, http2 := range []bool{false, true} {
		server := watch(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if _, ok := w.(http.Hijacker); ok == http2 {
				t.Errorf("over HTTP/%d it is a Hijacker: %t", r.ProtoMajor, ok)
			}
			if _, ok := w.(io.ReaderFrom); !ok { // by which files are sent without a copy
				t.Errorf("over HTTP/%d it is no ReaderFrom", r.ProtoMajor)
			}
			switch err := w.(http.Pusher).Push("/pushed", nil); {
			case !http2 && err != http.ErrNotSupported:
				t.Errorf("Push over HTTP/1: %v", err)
			case err != nil && !errors.Is(err, http.ErrNotSupported) && !strings.Contains(err.Error(), "push"):
				t.Errorf("Push: %v", err)
			}
			c := http.NewResponseController(w)
			later := time.Now().Add(time.Minute)
			if err := errors.Join(c.SetReadDeadline(later), c.SetWriteDeadline(later)); err != nil {
				t.Error(err)
			}
			if err := c.EnableFullDuplex(); err != nil && !http2 {
				t.Error(err)
			}
			http.ServeFile(w, r, file)
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
		})
		if status, body, err := server.do(t, "GET"); status != 200 || len(body) != 1<<20 || err != nil {
			t.Errorf("%d, %d bytes, %v", status, len(body), err)
		}
		if got, want := server.once(t), (ratelimit.Response{Status: 200, Written: true, Bytes: 1 << 20, Cost: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// Goroutines that a handler leaves behind may still write while the request is settled, by what was written until then.
func TestAHandlerMayLeaveWritersBehind(t *testing.T) {
	const before, after = 10, 1000
	l := newLimiter(t, ratelimit.Config{})
	var settledAs []ratelimit.Response
	p := settled("api", ratelimit.PerHour(9), func(_ *http.Request, r ratelimit.Response) int64 {
		settledAs = append(settledAs, r)
		return 3
	})
	var ctx context.Context
	left := make(chan struct{})
	h := l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx = r.Context()
		for range before {
			w.Write([]byte("data"))
		}
		go func() {
			defer close(left)
			for range after {
				w.Write([]byte("late"))
				ratelimit.SetCost(r.Context(), "nobody", 2)
			}
		}()
	}))
	h.ServeHTTP(ratetest.NewDiscard(), httptest.NewRequest("GET", "/", nil))
	<-left
	if len(settledAs) != 1 {
		t.Fatalf("settled %d times, want once", len(settledAs))
	}
	got := settledAs[0]
	if got.Bytes < before*4 || got.Bytes > (before+after)*4 || got.Bytes%4 != 0 {
		t.Errorf("%d bytes were settled, want whole writes, of which %d were made before the handler returned", got.Bytes, before)
	}
	if got.Bytes = 0; got != (ratelimit.Response{Status: 200, Written: true, Cost: 1}) {
		t.Errorf("got %+v", got)
	}
	if ratelimit.SetCost(ctx, "api", 9) || remaining(t, l, p) != 6 {
		t.Errorf("%d are left of 9, want 6: what is written later changes nothing", remaining(t, l, p))
	}
}

// A stream that is never told that its client has left never ends.
func TestAStreamEndsWhenItsClientHasLeft(t *testing.T) {
	plain, settling := perIP("plain", ratelimit.PerHour(9)), settled("settling", ratelimit.PerHour(9), asCharged)
	for name, limited := range map[string]func(*ratelimit.Limiter, http.Handler) http.Handler{
		"Settle": func(l *ratelimit.Limiter, h http.Handler) http.Handler { return l.Limit(settling)(h) },
		"headers.Merge": func(l *ratelimit.Limiter, h http.Handler) http.Handler {
			return l.Limit(plain)(headers.Merge(h))
		},
		"Settle in headers.Merge": func(l *ratelimit.Limiter, h http.Handler) http.Handler {
			return l.Limit(plain)(headers.Merge(l.Limit(settling)(h)))
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " over HTTP/2"}[http2], func(t *testing.T) {
				ended := make(chan error, 1)
				server := httptest.NewUnstartedServer(limited(newLimiter(t, ratelimit.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					stream := http.NewResponseController(w)
					_, _ = io.WriteString(w, "data\n")
					err := stream.Flush()
					<-r.Context().Done() // the client has left, which the connection may take a moment to know
					for begin := time.Now(); err == nil && time.Since(begin) < 2*time.Second; err = stream.Flush() {
						_, _ = io.WriteString(w, "more\n")
					}
					ended <- err
				})))
				if server.EnableHTTP2 = http2; http2 {
					server.StartTLS()
				} else {
					server.Start()
				}
				defer server.Close()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				leave()
				if err := <-ended; err == nil {
					t.Error("no flush failed")
				}
			})
		}
	}
}
