package skip_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/skip"
)

func TestPreflights(t *testing.T) {
	lines := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	const origin, asked = "Origin", "Access-Control-Request-Method"
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		want   bool
	}{
		{"A preflight", func(*http.Request) {}, true},
		{"One with what browsers add", func(r *http.Request) {
			for _, name := range []string{"Accept", "Accept-Language", "Accept-Encoding", "User-Agent", "Referer", "Connection", "Sec-Fetch-Mode", "Access-Control-Request-Headers", "Via", "X-Forwarded-For"} {
				r.Header[name] = []string{"keep-alive, authorization, x"}
			}
		}, true},
		{"One without a body's reader", func(r *http.Request) { r.Body = nil }, true},
		{"An opaque origin", lines(origin, "null"), true},
		{"A method of one's own", lines(asked, "BREW"), true},

		{"GET", method("GET"), false},
		{"Another case", method("options"), false},
		{"No origin", lines(origin), false},
		{"An empty origin", lines(origin, ""), false},
		{"Two origins", lines(origin, "https://a.example", "https://a.example"), false},
		{"No method", lines(asked), false},
		{"An empty method", lines(asked, ""), false},
		{"Two methods", lines(asked, "GET", "GET"), false},
		{"A list of methods", lines(asked, "GET, PUT"), false},
		{"No token", lines(asked, "GET /login"), false},
		{"A method of 256 bytes", lines(asked, strings.Repeat("A", 256)), true},
		{"A longer method", lines(asked, strings.Repeat("A", 257)), false},

		{"A length", func(r *http.Request) { r.ContentLength, r.Body = 1, io.NopCloser(strings.NewReader("a")) }, false},
		{"A length that is not known", func(r *http.Request) { r.ContentLength = -1 }, false},
		{"A body of no length", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("a")) }, false},
		{"Chunks", func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }, false},
		{"Authorization", lines("Authorization", "Basic YTpi"), false},
		{"An empty Authorization", lines("Authorization", ""), false},
		{"Proxy-Authorization", lines("Proxy-Authorization", "Basic YTpi"), false},
		{"Cookies", lines("Cookie", "a=b"), false},
		{"Upgrade", lines("Upgrade", "h2c"), false},
		{"X-HTTP-Method-Override", lines("X-Http-Method-Override", "POST"), false},
		{"X-HTTP-Method", lines("X-Http-Method", "POST"), false},
		{"X-Method-Override", lines("X-Method-Override", "POST"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := parseRequest(t, "OPTIONS", "/login")
			for _, change := range append(slices.Clone(preflight), tt.change) {
				change(r)
			}
			if got := skip.Preflights()(r); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestAPreflightTriesNoPasswords(t *testing.T) {
	for name, skip := range map[string]func(*http.Request) bool{"no skip": nil, "SkipPreflights": skip.Preflights()} {
		login := perIP("login", ratelimit.PerHour(3))
		login.Settle, login.FailClosed = ratelimit.FailedLogins, true
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{login}, Skip: skip})
		tried := 0
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tried++
			w.WriteHeader(http.StatusUnauthorized)
		}))
		for i := range 500 {
			get(h, append(slices.Clone(preflight), func(r *http.Request) { r.SetBasicAuth("admin", fmt.Sprint(i)) })...)
		}
		if tried != 3 {
			t.Errorf("%s: %d passwords were tried, want 3", name, tried)
		}
	}
}

// randomRequest returns a request as net/http's server reads it, or an error if that refuses it.
func randomRequest(random *rand.Rand) (*http.Request, error) {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: api.example\r\n",
		one("OPTIONS", "OPTIONS", "OPTIONS", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "options", "QUERY", "PROPFIND", "PRI", "!#$%&'*+-.^_`|~"),
		one("/login", "/login", "/login?_method=POST", "/healthz", "/static/..;/login", "/", "*", "http://other.example/login"))
	if random.IntN(2) == 0 {
		line(one("Origin", "origin"), one("https://a.example", "null", ""))
		line(one("Access-Control-Request-Method", "access-control-request-method"), one("POST", "GET", "BREW", "", "a b"))
	}
	credentials := []string{"Authorization", "authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"}
	for range random.IntN(4) {
		name := one(append(credentials, forgedHeaders...)...)
		for range 1 + random.IntN(2) {
			line(name, one(append([]string{"Basic YTpi", "a=b", "POST"}, forgedValues...)...))
		}
	}
	switch random.IntN(6) {
	case 0:
		b.WriteString("Content-Length: 3\r\n\r\na=b")
	case 1:
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n0\r\n\r\n")
	default:
		b.WriteString("\r\n")
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(b.String())))
	if err == nil {
		r.RemoteAddr = stranger
	}
	return r, err
}

// routers mount a handler behind a limiter, for all methods.
var routers = map[string]func(l *ratelimit.Limiter, p ratelimit.Policy, h http.HandlerFunc) http.Handler{
	"ServeMux inside": func(l *ratelimit.Limiter, _ ratelimit.Policy, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/login", h)
		mux.Handle("/", h)
		return l.Handler(mux)
	},
	"ServeMux outside": func(l *ratelimit.Limiter, p ratelimit.Policy, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/login", l.Limit(p)(h))
		mux.Handle("/{rest...}", l.Limit(p)(h))
		return mux
	},
	"chi": func(l *ratelimit.Limiter, _ ratelimit.Policy, h http.HandlerFunc) http.Handler {
		r := chi.NewRouter()
		r.Use(l.Handler)
		r.Handle("/login", h)
		r.NotFound(h)
		r.MethodNotAllowed(h)
		return r
	},
	"chi, of the route": func(l *ratelimit.Limiter, p ratelimit.Policy, h http.HandlerFunc) http.Handler {
		r := chi.NewRouter()
		r.With(l.Limit(p)).Handle("/*", h)
		return r
	},
	"ReverseProxy": func(l *ratelimit.Limiter, _ ratelimit.Policy, h http.HandlerFunc) http.Handler {
		return l.Handler(&httputil.ReverseProxy{
			Rewrite: func(*httputil.ProxyRequest) {},
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				h(w, r)
				return w.Result(), nil
			}),
			ErrorLog: log.New(io.Discard, "", 0),
		})
	},
}

// A handler never runs without an Event, unless Skip said so, and for more requests than the limit only if these
// are exempt; and what SkipPreflights exempts can be nothing but a preflight.
func TestNoHandlerRunsWithoutAnEvent(t *testing.T) {
	const burst, requests = 3, 150
	skips := map[string]func(*http.Request) bool{
		"none":           nil,
		"SkipPreflights": skip.Preflights(),
		"paths and addresses": skip.Any(
			skip.Paths("GET /healthz", "/static/"), skip.IPs(ratelimit.PrivateNetworks...),
		),
	}
	for skipName, skip := range skips {
		for router, mount := range routers {
			for _, limit := range []ratelimit.Limit{ratelimit.PerHour(burst), ratelimit.PerHour(1e6)} {
				name := fmt.Sprintf("%s, %s, %v", skipName, router, limit)
				p := ratelimit.Policy{Name: "login", Key: ratelimit.Static("all"), Limit: limit, Settle: ratelimit.FailedLogins, FailClosed: true}
				events, runs := 0, 0
				l := newLimiter(t, ratelimit.Config{
					Policies: []ratelimit.Policy{p},
					Skip:     skip,
					Observe: func(_ context.Context, e *ratelimit.Event) {
						if e.Op == "request" { // not "settle"
							events++
						}
					},
				})
				var body int
				h := mount(l, p, func(w http.ResponseWriter, r *http.Request) {
					runs, body = runs+1, 0
					if r.Body != nil { // a ReverseProxy takes away what is empty
						b, _ := io.ReadAll(r.Body)
						body = len(b)
					}
					w.WriteHeader(http.StatusUnauthorized)
				})
				random := rand.New(rand.NewPCG(1, 2))
				counted, free := 0, 0
				for range requests {
					r, err := randomRequest(random)
					if err != nil {
						continue // nor would the server have it
					}
					skipped := skip != nil && skip(r)
					ranBefore, seenBefore := runs, events
					h.ServeHTTP(httptest.NewRecorder(), r.Clone(t.Context()))
					ran, seen := runs-ranBefore, events-seenBefore
					if ran > 1 || ran > 0 && !skipped && seen != 1 || skipped && seen != 0 {
						t.Errorf("%s: the handler ran %d times, with %d events: %s %s %v", name, ran, seen, r.Method, r.URL, r.Header)
					}
					switch {
					case ran == 0:
					case !skipped:
						counted++
					default:
						free++
						_, authorization := r.Header["Authorization"]
						_, proxy := r.Header["Proxy-Authorization"]
						_, cookie := r.Header["Cookie"]
						if skipName == "SkipPreflights" && (r.Method != "OPTIONS" || body > 0 || authorization || proxy || cookie) {
							t.Errorf("%s: the handler ran uncounted for %s %s %v", name, r.Method, r.URL, r.Header)
						}
					}
				}
				if counted == 0 || limit.Rate == burst && counted != burst {
					t.Errorf("%s: the handler ran for %d requests that count", name, counted)
				}
				if skip == nil && free > 0 || skipName == "SkipPreflights" && free == 0 {
					t.Errorf("%s: the handler ran for %d requests that do not count", name, free)
				}
			}
		}
	}
}

// Browsers send preflights over HTTP/2, where a request without a body has one that is empty.
func TestPreflightsOverHTTP2AreSkipped(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerHour(1)}},
		Skip:     skip.Preflights(),
	})
	server := httptest.NewUnstartedServer(l.Handler(okHandler))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	send := func(body io.Reader) *http.Response {
		r, err := http.NewRequest("OPTIONS", server.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://app.example")
		r.Header.Set("Access-Control-Request-Method", "PUT")
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response
	}
	for range 3 {
		if response := send(nil); response.StatusCode != 200 || response.ProtoMajor != 2 {
			t.Errorf("%d over HTTP/%d", response.StatusCode, response.ProtoMajor)
		}
	}
	send(io.MultiReader(strings.NewReader("x"))) // of unknown length
	if response := send(io.MultiReader(strings.NewReader("x"))); response.StatusCode != 429 {
		t.Errorf("with a body: %d, want it limited", response.StatusCode)
	}
}
