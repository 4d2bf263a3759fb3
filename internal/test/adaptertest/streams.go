package adaptertest

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

var streams = []check{
	{"stream", func(e *env) { e.testStream(e.http1, App{}) }},
	{"stream over HTTP/2", func(e *env) { e.testStream(e.http2, App{}) }},
	{"stream, gzip outside", func(e *env) { e.testStream(e.http1, App{Outside: []any{e.f.Gzip}}) }},
	{"stream, gzip inside", func(e *env) { e.testStream(e.http1, App{Inside: []any{e.f.Gzip}}) }},
	{"stream: Settle is told of its bytes", testStreamedBytes},
	{"deadlines by http.ResponseController", testDeadlines},
	{"Settle is told of bodies", testBodies},
	{"gzip outside", func(e *env) { e.testGzip(true) }},
	{"gzip inside", func(e *env) { e.testGzip(false) }},
}

// recorder returns a policy whose Settle sends the response to the channel, and refunds what the request was charged.
func recorder(name string) (ratelimit.Policy, <-chan ratelimit.Response) {
	responses := make(chan ratelimit.Response, 10)
	policy := everybody(name, 10)
	policy.Settle = func(_ *http.Request, response ratelimit.Response) int64 {
		responses <- response
		return 0
	}
	return policy, responses
}

func (e *env) settled(responses <-chan ratelimit.Response) ratelimit.Response {
	e.Helper()
	return next(e, responses)
}

// next receives what a server sends, perhaps after the client has its response.
func next[T any](e *env, from <-chan T) (v T) {
	e.Helper()
	select {
	case v = <-from:
	case <-time.After(e.timeout):
		e.Fatalf("nothing in %v", e.timeout)
	}
	return v
}

// The first part of a response arrives before the handler writes the second.
func (e *env) testStream(client *http.Client, app App) {
	policy, responses := recorder("api")
	release := make(chan struct{})
	app.Limiter, app.Handler = e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}}), true
	app.Routes = []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
		return c.Stream(func(w io.Writer, flush func() error) error {
			io.WriteString(w, "first\n")
			if err := flush(); err != nil {
				return err
			}
			select {
			case <-release:
			case <-time.After(e.timeout):
			}
			_, err := io.WriteString(w, "last\n")
			return err
		})
	}}}
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	accepted := "identity"
	if len(app.Outside)+len(app.Inside) > 0 {
		accepted = "gzip"
	}
	response, err := client.Do(e.request("GET", e.serve(app), "Accept-Encoding", accepted))
	if err != nil {
		e.Fatal(err)
	}
	defer response.Body.Close()
	body := io.Reader(response.Body)
	if accepted == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			e.Fatal(err)
		}
	}
	first := make([]byte, len("first\n"))
	_, err = io.ReadFull(body, first)
	free()
	if err != nil || string(first) != "first\n" {
		e.Fatalf("got %q, error %v", first, err)
	}
	if rest, err := io.ReadAll(body); err != nil || string(rest) != "last\n" {
		e.Errorf("then got %q, error %v", rest, err)
	}
	if response.Header.Get("X-Ratelimit-Remaining") != "9" {
		e.Errorf("header %v", response.Header)
	}
	if r := e.settled(responses); r.Status != 200 || !r.Written || r.Panicked || r.Hijacked {
		e.Errorf("settled for %+v", r)
	}
}

func testStreamedBytes(e *env) {
	policy, responses := recorder("api")
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}}),
		Handler: true,
		Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
			return c.Stream(func(w io.Writer, flush func() error) error {
				for range 3 {
					io.WriteString(w, strings.Repeat("x", 1000))
					flush()
				}
				return nil
			})
		}}},
	})
	if a := e.get(url); len(a.body) != 3000 {
		e.Errorf("status %d, %d bytes", a.status, len(a.body))
	}
	if r := e.settled(responses); r.Bytes != 3000 {
		e.Errorf("settled for %+v", r)
	}
}

// A handler that answers nothing has not answered 200.
func testBodies(e *env) {
	policy, responses := recorder("api")
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}}),
		Handler: true,
		Routes: []Route{
			{Method: "GET", Path: "/nothing", Handler: func(Context) error { return nil }},
			{Method: "GET", Path: "/status", Handler: func(c Context) error { return c.Status(401) }},
			{Method: "GET", Path: "/body", Handler: func(c Context) error { return c.Text(403, "no") }},
		},
	})
	for path, want := range map[string]ratelimit.Response{
		"/nothing": {Status: 200, Cost: 1},
		"/status":  {Status: 401, Cost: 1, Written: true},
		"/body":    {Status: 403, Cost: 1, Written: true, Bytes: 2},
	} {
		e.want(e.get(url+path), want.Status, "%s", path)
		if got := e.settled(responses); got != want {
			e.Errorf("%s: settled for %+v, want %+v", path, got, want)
		}
	}
}

func testDeadlines(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{settling(everybody("api", 10))}}),
		Handler: true,
		Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
			w := c.Writer()
			if w == nil {
				return c.Text(500, "no http.ResponseWriter")
			}
			control := http.NewResponseController(w)
			if err := control.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				return c.Text(500, err.Error())
			}
			if err := control.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				return c.Text(500, err.Error())
			}
			return c.Text(200, "ok")
		}}},
	})
	a := e.get(url)
	e.want(a, 200, "request")
	if a.header.Get("X-Ratelimit-Remaining") != "9" {
		e.Errorf("header %v", a.header)
	}
}

// settling returns p with a Settle.
func settling(p ratelimit.Policy) ratelimit.Policy {
	p.Settle = func(_ *http.Request, r ratelimit.Response) int64 { return r.Cost }
	return p
}

func (e *env) testGzip(outside bool) {
	policy, responses := recorder("api")
	app := App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}}),
		Handler: true,
		Inside:  []any{e.f.Gzip},
		Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
			return c.Text(201, strings.Repeat("compress me ", 1000))
		}}},
	}
	if outside {
		app.Inside, app.Outside = nil, app.Inside
	}
	a := e.get(e.serve(app), "Accept-Encoding", "gzip")
	e.want(a, 201, "request")
	if a.header.Get("Content-Encoding") != "gzip" {
		e.Fatalf("not compressed: header %v", a.header)
	}
	unzip, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		e.Fatal(err)
	}
	if text, err := io.ReadAll(unzip); err != nil || len(text) != 12000 {
		e.Errorf("%d bytes, error %v", len(text), err)
	}
	r := e.settled(responses)
	if r.Status != 201 || !r.Written || r.Bytes == 0 {
		e.Errorf("settled for %+v", r)
	}
	if !outside && r.Bytes > 1000 {
		e.Errorf("settled for %d bytes, want those that were compressed", r.Bytes)
	}
}
