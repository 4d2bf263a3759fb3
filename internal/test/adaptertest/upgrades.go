package adaptertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

var upgrades = []check{
	{"upgrade: counts once", func(e *env) { e.testUpgrade(nil) }},
	{"upgrade: Settle is told that the connection was taken over", func(e *env) {
		e.testUpgrade(func(r ratelimit.Response) {
			if !r.Hijacked {
				e.Errorf("settled for %+v", r)
			}
		})
	}},
}

// A connection that the handler takes over counts once, and works.
func (e *env) testUpgrade(inspect func(ratelimit.Response)) {
	policy := everybody("api", 10)
	responses := make(chan ratelimit.Response, 10)
	policy.Settle = func(_ *http.Request, response ratelimit.Response) int64 {
		responses <- response
		return ratelimit.FailedLogins(nil, response)
	}
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	url := e.serve(App{
		Limiter: limiter,
		Handler: true,
		Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
			return c.Hijack(func(conn net.Conn) {
				conn.SetDeadline(time.Now().Add(e.timeout))
				io.Copy(conn, conn)
			})
		}}},
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(e.timeout))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	lines := bufio.NewReader(conn)
	response, err := http.ReadResponse(lines, nil)
	if err != nil {
		e.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		e.Fatalf("status %d", response.StatusCode)
	}
	for range 3 {
		fmt.Fprintln(conn, "message")
		if line, err := lines.ReadString('\n'); line != "message\n" {
			e.Fatalf("got %q, error %v", line, err)
		}
	}
	conn.Close()
	r := e.settled(responses)
	if inspect != nil {
		inspect(r)
	}
	if got := e.remaining(limiter, policy); got != 9 {
		e.Errorf("%d left, want 9", got)
	}
}
