package admin_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

// reads and changes are all routes.
var (
	reads   = []string{"", "style.css", "page.js", "facts.json", "top.json?policy=api", "top?policy=api", "key?policy=api&key=ip:1", "key.json?policy=api&key=ip:1", "explain", "overrides", "overrides.json"}
	changes = []string{"key/reset", "key/refund", "key/block", "key/unblock"}
)

// Each route answers by what the user may do and by where the request comes from, and an answer that refuses changes
// nothing.
func TestRoutesByAccessAndOrigin(t *testing.T) {
	origins := map[string]struct {
		header [2]string
		may    bool // a POST of it
	}{
		"no browser":             {[2]string{}, true},
		"the page itself":        {[2]string{"Sec-Fetch-Site", "same-origin"}, true},
		"the address bar":        {[2]string{"Sec-Fetch-Site", "none"}, true},
		"another site":           {[2]string{"Sec-Fetch-Site", "cross-site"}, false},
		"another subdomain":      {[2]string{"Sec-Fetch-Site", "same-site"}, false},
		"unknown word":           {[2]string{"Sec-Fetch-Site", "x"}, false},
		"old, the page itself":   {[2]string{"Origin", "http://ops.example"}, true},
		"old, another site":      {[2]string{"Origin", "http://evil.example"}, false},
		"old, another port":      {[2]string{"Origin", "http://ops.example:81"}, false},
		"old, a sandbox":         {[2]string{"Origin", "null"}, false},
		"a trusted origin":       {[2]string{"Origin", "https://front.example"}, true},
		"a trusted origin's sub": {[2]string{"Origin", "https://x.front.example"}, false},
	}
	for access := admin.None; access <= admin.Change+1; access++ { // one more than there are: nobody
		knows := access == admin.View || access == admin.Change
		for name, origin := range origins {
			if !knows && !origin.may && name != "another site" { // whom the access alone keeps out
				continue
			}
			t.Run(fmt.Sprint(access, "/", name), func(t *testing.T) {
				s := newSite(t, admin.Config{TrustedOrigins: []string{"https://front.example"}, Overrides: withOverrides}, ratelimit.Config{})
				s.access = access
				from := func(r *http.Request) {
					if origin.header[0] != "" {
						r.Header.Set(origin.header[0], origin.header[1])
					}
				}
				for _, route := range reads {
					want := map[bool]int{true: 200, false: 403}[knows]
					s.want(s.get(route, from), want)
					if w := serve(s.page, "HEAD", route, "", from); w.Code != want || knows && w.Body.Len() > 0 {
						t.Errorf("HEAD %s: status %d, want %d, and %d bytes", route, w.Code, want, w.Body.Len())
					}
				}
				for _, route := range []string{"key", "key.json"} { // reading by POST
					s.want(s.post(route, form("ip:1"), from), map[bool]int{true: 200, false: 403}[knows && origin.may])
				}
				for _, route := range []string{"explain", "explain.json"} {
					w := s.post(route, url.Values{"url": {"/members"}, "peer": {"192.0.2.1"}}, from)
					s.want(w, map[bool]int{true: 200, false: 403}[knows && origin.may])
				}
				for i, limit := range []string{"6/1h", ""} {
					w := s.post("overrides", url.Values{"policy": {"api"}, "limit": {limit}, "end": {[]string{"", "1"}[i]}}, from)
					if access == admin.Change && origin.may {
						s.want(w, 303)
					} else if s.want(w, 403); len(s.kept.values()) > 0 || s.limit() != "5/1h" {
						t.Errorf("overrides: %v, in force is %s", s.kept.values(), s.limit())
					}
				}
				for _, route := range changes {
					s.limiter.Reset(t.Context(), api, "ip:1")
					s.take("ip:1", 3)
					before := s.remaining("ip:1")
					w := s.post(route, form("ip:1", "n", "1", "for", "1m"), from)
					if access == admin.Change && origin.may {
						s.want(w, 303)
						continue
					}
					s.want(w, 403)
					if after := s.remaining("ip:1"); after != before {
						t.Errorf("%s: %d tokens, before %d", route, after, before)
					}
				}
				if changed := strings.Contains(s.log.String(), "admin change"); changed != (access == admin.Change && origin.may) {
					t.Errorf("logged: %s", s.log.String())
				}
			})
		}
	}
}

func TestMethods(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	s.take("ip:1", 3)
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "X"} {
		for route, allow := range map[string]string{"": "GET, HEAD", "facts.json": "GET, HEAD", "top.json": "GET, HEAD", "style.css": "GET, HEAD", "key": "GET, HEAD, POST", "key.json": "GET, HEAD, POST",
			"key/reset": "POST", "key/refund": "POST", "key/block": "POST", "key/unblock": "POST",
			"explain": "GET, HEAD, POST", "explain.json": "POST", "overrides": "GET, HEAD, POST", "overrides.json": "GET, HEAD"} {
			if strings.Contains(allow, method) && method != "X" {
				continue
			}
			w := serve(s.page, method, route+"?policy=api&key=ip:1&n=1&for=1m", "")
			s.want(w, 405)
			if got := w.Header().Get("Allow"); got != allow {
				t.Errorf("%s %s: Allow %q, want %q", method, route, got, allow)
			}
		}
	}
	if n := s.remaining("ip:1"); n != 2 {
		t.Errorf("%d tokens, want 2", n)
	}
}

// Whatever the answer, no browser lets another site use it, and none keeps it.
func TestEveryAnswerIsProtected(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	answers := map[string]*httptest.ResponseRecorder{"unknown": s.get("nowhere"), "method": serve(s.page, "PUT", "", ""), "malformed": s.get("key?key=%zz"), "change": s.post("key/reset", form("ip:1"))}
	for _, route := range reads {
		answers[route] = s.get(route)
	}
	s.access = admin.None
	answers["stranger"] = s.get("")
	for name, w := range answers {
		for header, want := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Access-Control-Allow-Origin":  "",
		} {
			if got := w.Header().Get(header); got != want {
				t.Errorf("%s: %s: %q, want %q", name, header, got, want)
			}
		}
		want := "no-store"
		if strings.HasSuffix(name, ".css") || strings.HasSuffix(name, ".js") {
			want = "private, no-cache"
		}
		if got := w.Header().Get("Cache-Control"); got != want {
			t.Errorf("%s: Cache-Control: %q, want %q", name, got, want)
		}
	}
}

func TestAStrangerLearnsNothing(t *testing.T) {
	s := newSite(t, admin.Config{Title: "Secret service"}, ratelimit.Config{})
	s.access = admin.None
	want := s.get("").Body.String()
	for _, path := range append(append([]string{"nowhere", "key/nowhere", "top?policy=none", "explain.json"}, reads...), changes...) {
		if w := s.get(path, asBrowser); w.Code != 403 || w.Body.String() != want {
			t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
}

func TestAuthorizeThatPanicsLetsNobodyIn(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	h := admin.Handler(s.limiter, func(*http.Request) (string, admin.Access) { panic("no session store") }, admin.Config{Logger: slog.New(slog.DiscardHandler)})
	if w := serve(h, "GET", "", ""); w.Code != 403 {
		t.Errorf("status %d", w.Code)
	}
}

type panics struct{ store.Store }

func (panics) Take(context.Context, []store.Charge, []store.State) (bool, error) { panic("Take") }
func (panics) Stats() store.CacheStats                                           { panic("Stats") }

// A panic in a goroutine of the page would end the process.
func TestPanicsEndNoMoreThanARequest(t *testing.T) {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: panics{}, Policies: []ratelimit.Policy{api}, Logger: slog.New(slog.DiscardHandler)}))
	authorize := func(*http.Request) (string, admin.Access) { return "ann", admin.Change }
	for name, cfg := range map[string]admin.Config{"Take": {}, "Stats": {Caches: map[string]interface{ Stats() store.CacheStats }{"jwt": panics{}}}} {
		cfg.Logger = slog.New(slog.DiscardHandler)
		h := admin.Handler(limiter, authorize, cfg)
		for range 10 { // and no place is lost
			func() {
				defer func() {
					if p := recover(); p != map[string]any{"Stats": name}[name] { // in the goroutine of the request, where net/http recovers
						t.Errorf("%s: panic %v", name, p)
					}
				}()
				if w := serve(h, "GET", "key?key=ip:1", "", asBrowser); !strings.Contains(w.Body.String(), "the store panicked") {
					t.Errorf("%s: %s", name, w.Body)
				}
			}()
		}
	}
}

// A blocked client sends no body, and does not read its answer.
type blocked struct {
	http.ResponseWriter
	stuck, until chan struct{}
}

func (b blocked) Read([]byte) (int, error) {
	b.stuck <- struct{}{}
	<-b.until
	return 0, io.EOF
}

func (b blocked) Write([]byte) (int, error) { return b.Read(nil) }

// Clients that send or read slowly leave the page to the others.
func TestSlowClientsHoldNoPlace(t *testing.T) {
	for name, of := range map[string]struct{ method, path string }{"a body": {"POST", "key"}, "a body of a change": {"POST", "key/reset"}, "a request to explain": {"POST", "explain"}, "a limit": {"POST", "overrides"}, "an answer": {"GET", ""}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, admin.Config{}, ratelimit.Config{})
			b := blocked{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
			var all sync.WaitGroup
			for range 20 {
				r := httptest.NewRequest(of.method, "/admin/"+of.path, b)
				r.Header.Set("Content-Type", "application/json")
				all.Go(func() { s.page.ServeHTTP(blocked{httptest.NewRecorder(), b.stuck, b.until}, r) })
				<-b.stuck
			}
			s.want(s.get(""), 200)
			s.want(s.post("key/reset", form("ip:1")), 303)
			go func() {
				for range b.stuck { // the answers
				}
			}()
			close(b.until)
			all.Wait()
			close(b.stuck)
		})
	}
}

func TestWiring(t *testing.T) {
	l := ratetest.NewLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api}})
	for want, build := range map[string]func(){
		"authorize: must not be nil": func() { admin.Handler(l, nil, admin.Config{}) },
		"limiter: must not be nil":   func() { admin.Handler(nil, admin.Loopback, admin.Config{}) },
		"Config.KeySecret has 3":     func() { admin.Handler(l, admin.Loopback, admin.Config{KeySecret: []byte("abc")}) },
		"Config.TrustedOrigins":      func() { admin.Handler(l, admin.Loopback, admin.Config{TrustedOrigins: []string{"ops.example"}}) },
		"Config.Policies[0]: Name":   func() { admin.Handler(l, admin.Loopback, admin.Config{Policies: []ratelimit.Policy{{}}}) },
	} {
		ratetest.CheckPanic(t, build, "admin: Handler: ", want)
	}
}

func TestLoopback(t *testing.T) {
	for _, tt := range []struct {
		peer, host, header string
		want               admin.Access
	}{
		{"127.0.0.1:5000", "127.0.0.1:8080", "", admin.Change},
		{"127.9.9.9:5000", "localhost", "", admin.Change},
		{"127.0.0.1:5000", "LOCALHOST:8080", "", admin.Change},
		{"[::1]:5000", "[::1]:8080", "", admin.Change},
		{"[::1]:5000", "[::1]", "", admin.Change},
		{"[::ffff:127.0.0.1]:5000", "127.0.0.1", "", admin.Change},
		{"192.0.2.1:5000", "127.0.0.1:8080", "", admin.None},
		{"127.0.0.1:5000", "evil.example", "", admin.None}, // whose DNS says 127.0.0.1
		{"127.0.0.1:5000", "localhost.evil.example", "", admin.None},
		{"127.0.0.1:5000", "127.0.0.1.evil.example:8080", "", admin.None},
		{"127.0.0.1:5000", "", "", admin.None},
		{"127.0.0.1:5000", "[::1", "", admin.None},
		{"127.0.0.1:5000", "localhost", "X-Forwarded-For", admin.None},
		{"127.0.0.1:5000", "localhost", "Forwarded", admin.None},
		{"127.0.0.1:5000", "localhost", "Via", admin.None},
		{"@", "localhost", "", admin.None}, // a Unix socket
		{"", "localhost", "", admin.None},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = tt.peer, tt.host
		if tt.header != "" {
			r.Header.Set(tt.header, "")
		}
		if _, got := admin.Loopback(r); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A proxy on the same machine that adds no header, such as nginx with proxy_pass alone, sends HTTP/1.0 and the address
// that it connects to as Host.
func TestLoopbackRefusesABareProxy(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, allowed := admin.Loopback(r)
		fmt.Fprint(w, allowed == admin.Change)
	}))
	defer s.Close()
	address := s.Listener.Addr().String()
	_, port, _ := strings.Cut(address, ":")
	for request, want := range map[string]string{
		"GET / HTTP/1.0\r\nHost: " + address + "\r\nConnection: close\r\n\r\n":         "false",
		"GET / HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n":               "false",
		"GET / HTTP/1.1\r\nHost: backend\r\nConnection: close\r\n\r\n":                 "false", // the name of an upstream
		"GET / HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n":         "true",
		"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n":               "true",
		"GET / HTTP/1.1\r\nHost: localhost:" + port + "\r\nConnection: close\r\n\r\n":  "true",
		"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":               "true",
		"GET / HTTP/1.1\r\nHost: [::1]:" + port + "\r\nConnection: close\r\n\r\n":      "true",
		"GET / HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n":                   "true",
		"GET http://" + address + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": "true", // the Host is in the first line
		"GET http://backend/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n": "false",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, request)
		answer, err := io.ReadAll(conn)
		conn.Close()
		if _, got, _ := strings.Cut(string(answer), "\r\n\r\n"); err != nil || got != want {
			t.Errorf("%q: allowed %q, want %s: %v", request, got, want, err)
		}
	}
}

// The page works under any prefix, stripped or not.
func TestMounts(t *testing.T) {
	l := ratetest.NewLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api}})
	h := admin.Handler(l, func(*http.Request) (string, admin.Access) { return "", admin.View }, admin.Config{})
	whole := http.NewServeMux()
	whole.Handle("/a/limits/", h)
	router := chi.NewRouter()
	router.Handle("/a/limits/*", h)
	for name, mounted := range map[string]http.Handler{"under chi": router, "stripped": http.StripPrefix("/a/limits", h), "not stripped": h, "in a ServeMux": whole} {
		for path, want := range map[string]int{"/a/limits/": 200, "/a/limits/style.css": 200, "/a/limits/key": 400, "/a/limits/key.json?key=x": 200, "/a/limits/key/reset": 405, "/a/limits/nowhere": 404, "/a/limits/key/style.css": 200} {
			w := httptest.NewRecorder()
			mounted.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != want {
				t.Errorf("%s: %s: status %d, want %d", name, path, w.Code, want)
			}
		}
	}
	w := httptest.NewRecorder()
	http.StripPrefix("/a/limits", h).ServeHTTP(w, httptest.NewRequest("GET", "/a/limits?x=1", nil))
	if got := w.Header().Get("Location"); w.Code != 301 || got != "./limits/" {
		t.Errorf("without a slash: status %d to %q", w.Code, got)
	}
}
