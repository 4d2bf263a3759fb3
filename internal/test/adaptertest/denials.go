package adaptertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit"
)

var denials = []check{
	{"denial", func(e *env) { e.testDenial(e.http1) }},
	{"denial over HTTP/2", func(e *env) { e.testDenial(e.http2) }},
	{"denial of HEAD", testDenialOfHEAD},
	{"denial by Limit of a route", testDenialByLimit},
	{"denial by Limit of a group", testDenialByGroup},
}

// The sixth request is denied, and the headers of all are complete.
func (e *env) testDenial(client *http.Client) {
	var handled atomic.Int32
	api := everybody("api", 5)
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{api}}),
		Handler: true,
		Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
			handled.Add(1)
			return c.Text(http.StatusOK, "ok")
		}}},
	})
	for i := range 7 {
		a := read(client.Do(e.request("GET", url)))
		status, remaining := http.StatusOK, fmt.Sprint(4-i)
		if i >= 5 {
			status, remaining = http.StatusTooManyRequests, "0"
		}
		e.want(a, status, "request %d", i+1)
		for name, want := range map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": remaining} {
			if got := a.header.Get(name); got != want {
				e.Errorf("request %d: %s is %q, want %q", i+1, name, got, want)
			}
		}
		if a.header.Get("X-Ratelimit-Reset") == "" {
			e.Errorf("request %d: no X-RateLimit-Reset", i+1)
		}
		if status == http.StatusOK {
			if a.body != "ok" || a.header.Get("Retry-After") != "" {
				e.Errorf("request %d: body %q, Retry-After %q", i+1, a.body, a.header.Get("Retry-After"))
			}
			continue
		}
		if got := a.header.Get("Content-Type"); got != "application/problem+json" {
			e.Errorf("request %d: Content-Type %q", i+1, got)
		}
		if got := a.header.Get("Retry-After"); got != "3600" && got != "3599" {
			e.Errorf("request %d: Retry-After %q, want about an hour", i+1, got)
		}
		if got := a.header.Get("Cache-Control"); got != "no-store" {
			e.Errorf("request %d: Cache-Control %q", i+1, got)
		}
		if !strings.Contains(a.body, `"violated-policies":["api"]`) {
			e.Errorf("request %d: body %q", i+1, a.body)
		}
	}
	if got := handled.Load(); got != 5 {
		e.Errorf("the handler was called %d times, want 5", got)
	}
}

func testDenialOfHEAD(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{everybody("api", 1)}}),
		Handler: true,
		Routes:  []Route{{Method: "HEAD", Path: "/", Handler: func(c Context) error { return c.Status(http.StatusOK) }}},
	})
	for i, want := range []string{"200", "429"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			e.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		text, err := io.ReadAll(bufio.NewReader(conn))
		if err != nil {
			e.Fatal(err)
		}
		head, body, _ := strings.Cut(string(text), "\r\n\r\n")
		if !strings.HasPrefix(head, "HTTP/1.1 "+want) || body != "" {
			e.Errorf("request %d: want %s without a body, got\n%s", i+1, want, text)
		}
	}
}

func testDenialByLimit(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{}),
		Routes: []Route{
			{Method: "GET", Path: "/limited", Policies: []ratelimit.Policy{everybody("route", 1)}, Handler: ok},
			{Method: "GET", Path: "/free", Handler: ok},
		},
	})
	e.want(e.get(url+"/limited"), 200, "first")
	e.want(e.get(url+"/limited"), 429, "second")
	if a := e.get(url + "/free"); a.status != 200 || a.header.Get("X-Ratelimit-Limit") != "" {
		e.Errorf("a route without a limit: status %d, header %v", a.status, a.header)
	}
}

func testDenialByGroup(e *env) {
	group := []Group{{Prefix: "/v1", Policies: []ratelimit.Policy{everybody("group", 2)}}}
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{}),
		Routes: []Route{
			{Method: "GET", Groups: group, Path: "/a", Handler: ok},
			{Method: "GET", Groups: group, Path: "/b", Handler: ok},
			{Method: "GET", Path: "/free", Handler: ok},
		},
	})
	e.want(e.get(url+"/v1/a"), 200, "first")
	e.want(e.get(url+"/v1/b"), 200, "second")
	e.want(e.get(url+"/v1/a"), 429, "third")
	e.want(e.get(url+"/free"), 200, "a route of no group")
}
