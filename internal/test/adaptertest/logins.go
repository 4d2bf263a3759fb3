package adaptertest

import (
	"io"
	"net"
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

// A login is a Way in the words of the list, or of the framework.
type login struct {
	name            string
	status          int // of a failed one; 0: none
	fail, succeed   func(Context) error
	ownFail         any
	ownSucceed      any
	outside, inside []any
}

func setCost(c Context, n int64) { ratelimit.SetCost(c.Context(), "login", n) }

func commonLogins(f Framework) []login {
	boom := func(Context) error { panic("boom") }
	return []login{
		{name: "a status without a body", status: 401,
			fail:    func(c Context) error { return c.Status(401) },
			succeed: func(c Context) error { return c.Status(204) }},
		{name: "200 without a body", succeed: func(c Context) error { return c.Status(200) }},
		{name: "200 without a body, and SetCost", succeed: func(c Context) error {
			setCost(c, 0)
			return c.Status(200)
		}},
		{name: "a status with a body", status: 403,
			fail:    func(c Context) error { return c.Text(403, "wrong password") },
			succeed: func(c Context) error { return c.Text(200, "welcome") }},
		{name: "an error of the server", status: 502, fail: func(c Context) error { return c.Text(502, "later") }},
		{name: "200, and SetCost", status: 200, fail: func(c Context) error {
			setCost(c, 1)
			return c.Text(200, "wrong password")
		}},
		{name: "a redirect", status: 302,
			fail: func(c Context) error {
				setCost(c, 1)
				return c.Redirect("/login")
			},
			succeed: func(c Context) error { return c.Redirect("/home") }},
		{name: "a stream", succeed: func(c Context) error {
			return c.Stream(func(w io.Writer, flush func() error) error {
				io.WriteString(w, "welcome")
				return flush()
			})
		}},
		{name: "a panic", fail: boom},
		{name: "a panic, with Recovery outside", status: 500, fail: boom, outside: []any{f.Recovery}},
		{name: "a panic, with Recovery inside", status: 500, fail: boom, inside: []any{f.Recovery}},
		{name: "an abort", fail: func(Context) error { panic(http.ErrAbortHandler) }},
		{name: "gzip outside", status: 401, outside: []any{f.Gzip},
			fail:    func(c Context) error { return c.Text(401, "wrong password") },
			succeed: func(c Context) error { return c.Text(200, "welcome") }},
		{name: "gzip inside", status: 401, inside: []any{f.Gzip},
			fail:    func(c Context) error { return c.Text(401, "wrong password") },
			succeed: func(c Context) error { return c.Text(200, "welcome") }},
		{name: "a connection that was taken over", status: 101, fail: func(c Context) error {
			return c.Hijack(func(net.Conn) {})
		}},
	}
}

// logins returns the checks for all ways to answer a login: six failed ones, of which five are let through, and six
// successful ones.
func logins(f Framework) (checks []check) {
	all := commonLogins(f)
	for _, w := range f.Ways {
		all = append(all, login{name: w.Name, status: w.Status, ownFail: w.Fail, ownSucceed: w.Succeed, outside: w.Outside, inside: w.Inside})
	}
	for _, l := range all {
		if l.fail != nil || l.ownFail != nil {
			checks = append(checks, check{"failed logins: " + l.name, func(e *env) { l.test(e, l.fail, l.ownFail, l.status, true) }})
		}
		if l.succeed != nil || l.ownSucceed != nil {
			checks = append(checks, check{"successful logins: " + l.name, func(e *env) { l.test(e, l.succeed, l.ownSucceed, 0, false) }})
		}
	}
	return checks
}

func (l *login) test(e *env, handler func(Context) error, native any, status int, fails bool) {
	policy := everybody("login", 5)
	policy.Settle = func(r *http.Request, response ratelimit.Response) int64 {
		// The status is the one that the client gets, unless middleware outside chooses it.
		if fails && l.outside == nil && !response.Panicked && !response.Hijacked && (response.Status != status || !response.Written && status != 200) {
			e.Errorf("settled for %+v, want status %d", response, status)
		}
		return ratelimit.FailedLogins(r, response)
	}
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}})
	route := Route{Method: "POST", Path: "/login", Handler: handler, Native: native}
	if l.inside == nil { // so that both places are tested
		route.Policies = []ratelimit.Policy{policy}
	}
	url := e.serve(App{
		Limiter: limiter,
		Handler: l.inside != nil,
		Outside: l.outside,
		Inside:  l.inside,
		Routes:  []Route{route},
	})
	for i := range 6 {
		a := e.send("POST", url+"/login", "Accept-Encoding", "gzip")
		switch {
		case fails && i < 5:
			if a.status != status {
				e.Fatalf("attempt %d: got status %d, error %v, body %q; want %d", i+1, a.status, a.err, a.body, status)
			}
		case fails:
			e.want(a, 429, "the sixth failed login")
		case a.status < 200 || a.status >= 400:
			e.Fatalf("successful login %d: status %d, error %v, body %q", i+1, a.status, a.err, a.body)
		}
	}
	want := int64(5)
	if fails {
		want = 0
	}
	e.eventually("all logins are settled", func() bool { return e.remaining(limiter, policy) == want })
}
