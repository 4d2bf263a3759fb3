package adaptertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

var slots = []check{
	{"slot: held while the handler runs", testSlots},
	{"slot: a request waits for one", testSlotWait},
	{"slot: free after a panic", testSlotAfterPanic},
	{"slot: free after another policy denied", testSlotAfterDenial},
	{"slot: held after the client has left", testSlotOfAbandoned},
	{"slot: held while a stream is written", testSlotOfStream},
	{"slot: held until a connection that was taken over is closed", testSlotOfUpgrade},
}

// slotsOf returns a policy under which n requests run at once.
func slotsOf(n int64) ratelimit.Policy {
	return ratelimit.Policy{Name: "slots", Key: ratelimit.Static("everybody"), Limit: ratelimit.Concurrency(n)}
}

// A workshop is an app whose handler runs until it is told to end.
type workshop struct {
	url     string
	running chan struct{} // receives for each handler that has begun
	end     chan struct{} // ends one handler, or all if it is closed
}

func (e *env) workshop(l *ratelimit.Limiter) *workshop {
	w := &workshop{running: make(chan struct{}, 10), end: make(chan struct{})}
	w.url = e.serve(App{Limiter: l, Handler: true, Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
		w.running <- struct{}{}
		select {
		case <-w.end:
		case <-time.After(e.timeout):
		}
		return ok(c)
	}}}})
	return w
}

// start sends a request to w.
func (e *env) start(w *workshop) <-chan answer {
	r, ended := e.request("GET", w.url), make(chan answer, 1)
	go func() { ended <- read(e.http1.Do(r)) }()
	return ended
}

// Of three requests at once the third is denied, until one of the others has ended.
func testSlots(e *env) {
	policy := slotsOf(2)
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	w := e.workshop(limiter)
	endAll := sync.OnceFunc(func() { close(w.end) })
	defer endAll()
	first, second := e.start(w), e.start(w)
	next(e, w.running)
	next(e, w.running)
	a := e.get(w.url)
	e.want(a, 429, "a third request")
	for name, want := range map[string]string{"Retry-After": "1", "X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": ""} {
		if got := a.header.Get(name); got != want {
			e.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(a.body, "Too many requests run at once.") {
		e.Errorf("the body is %s", a.body)
	}
	endAll()
	e.want(next(e, first), 200, "the first request")
	e.want(next(e, second), 200, "the second request")
	e.free(limiter, policy, 2)
	e.want(e.get(w.url), 200, "a request after them")
}

// free waits until n slots are free: a server may release a slot after the client has its answer.
func (e *env) free(l *ratelimit.Limiter, p ratelimit.Policy, n int64) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d slots are free", n), func() bool { return e.remaining(l, p) == n })
}

func testSlotWait(e *env) {
	policy := slotsOf(1)
	policy.MaxWait = time.Minute
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	w := e.workshop(limiter)
	endAll := sync.OnceFunc(func() { close(w.end) })
	defer endAll()
	first := e.start(w)
	next(e, w.running)
	second := e.start(w)
	e.eventually("the second request waits", func() bool { return limiter.Stats().Waiting == 1 })
	w.end <- struct{}{}
	e.want(next(e, first), 200, "the first request")
	next(e, w.running)
	endAll()
	a := next(e, second)
	e.want(a, 200, "the second request")
	if a.header.Get("X-RateLimit-Waited") == "" {
		e.Errorf("the second request has not waited: %v", a.header)
	}
	e.free(limiter, policy, 1)
}

func testSlotAfterPanic(e *env) {
	policy, held := slotsOf(1), make(chan int64, 1)
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	url := e.serve(App{Limiter: limiter, Handler: true, Outside: []any{e.f.Recovery}, Routes: []Route{{Method: "GET", Path: "/", Handler: func(Context) error {
		held <- e.remaining(limiter, policy)
		panic("boom")
	}}}})
	e.want(e.get(url), 500, "a panic")
	if left := next(e, held); left != 0 {
		e.Errorf("%d slots are free while the handler runs", left)
	}
	e.free(limiter, policy, 1)
}

// The slot that the outer limiter has taken is free when the inner one has refused the request.
func testSlotAfterDenial(e *env) {
	policy := slotsOf(2)
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	url := e.serve(App{Limiter: limiter, Handler: true, Routes: []Route{
		{Method: "GET", Path: "/", Policies: []ratelimit.Policy{everybody("rate", 1)}, Handler: ok},
	}})
	for _, status := range []int{200, 429, 429, 429} {
		e.want(e.get(url), status, "a request")
	}
	e.free(limiter, policy, 2)
}

// A handler that goes on without its client keeps its slot.
func testSlotOfAbandoned(e *env) {
	policy, begun, held := slotsOf(1), make(chan struct{}, 1), make(chan int64, 1)
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	url := e.serve(App{Limiter: limiter, Handler: true, Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
		begun <- struct{}{}
		select {
		case <-c.Context().Done():
		case <-time.After(100 * time.Millisecond): // not every framework notices that a client has left
		}
		held <- e.remaining(limiter, policy)
		return ok(c)
	}}}})
	ctx, leave := context.WithCancel(e.Context())
	defer leave()
	r, ended := e.request("GET", url).WithContext(ctx), make(chan answer, 1)
	go func() { ended <- read(e.http1.Do(r)) }()
	next(e, begun)
	leave()
	next(e, ended)
	if left := next(e, held); left != 0 {
		e.Errorf("%d slots are free while the handler runs", left)
	}
	e.free(limiter, policy, 1)
}

func testSlotOfStream(e *env) {
	policy, end := slotsOf(1), make(chan struct{})
	endAll := sync.OnceFunc(func() { close(end) })
	defer endAll()
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	url := e.serve(App{Limiter: limiter, Handler: true, Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
		return c.Stream(func(w io.Writer, flush func() error) error {
			io.WriteString(w, "first\n")
			if err := flush(); err != nil {
				return err
			}
			select {
			case <-end:
			case <-time.After(e.timeout):
			}
			return nil
		})
	}}}})
	response, err := e.http1.Do(e.request("GET", url))
	if err != nil {
		e.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, len("first\n"))); err != nil {
		e.Fatal(err)
	}
	if left := e.remaining(limiter, policy); left != 0 {
		e.Errorf("%d slots are free while the stream is written", left)
	}
	endAll()
	if _, err := io.ReadAll(response.Body); err != nil {
		e.Fatal(err)
	}
	e.free(limiter, policy, 1)
}

// The handler returns, and a goroutine serves the connection.
func testSlotOfUpgrade(e *env) {
	policy, returned := slotsOf(1), make(chan struct{}, 1)
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	url := e.serve(App{Limiter: limiter, Handler: true, Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
		defer func() { returned <- struct{}{} }()
		w := c.Writer()
		if w == nil {
			return c.Hijack(func(conn net.Conn) { io.Copy(conn, conn) }) // which is called later
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return err
		}
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		go func() {
			defer conn.Close()
			io.Copy(conn, conn)
		}()
		return nil
	}}}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(e.timeout))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	lines := bufio.NewReader(conn)
	if response, err := http.ReadResponse(lines, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		e.Fatalf("%v, error %v", response, err)
	}
	fmt.Fprintln(conn, "message")
	if line, err := lines.ReadString('\n'); line != "message\n" {
		e.Fatalf("got %q, error %v", line, err)
	}
	next(e, returned)
	time.Sleep(10 * time.Millisecond) // in which the adapter returns, too
	if left := e.remaining(limiter, policy); left != 0 {
		e.Errorf("%d slots are free while the connection is open", left)
	}
	conn.Close()
	e.free(limiter, policy, 1)
}
