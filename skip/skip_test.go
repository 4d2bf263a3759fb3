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
	"net/netip"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/skip"
)

func TestSkipsCombined(t *testing.T) {
	yes, no := func(*http.Request) bool { return true }, func(*http.Request) bool { return false }
	for name, tt := range map[string]struct {
		skip func(*http.Request) bool
		want bool
	}{
		"any of no": {skip.Any(no), false}, "any of yes": {skip.Any(yes), true},
		"any of no, yes": {skip.Any(no, yes), true}, "any of no, no": {skip.Any(no, no), false},
		"all of no": {skip.All(no), false}, "all of yes": {skip.All(yes), true},
		"all of yes, no": {skip.All(yes, no), false}, "all of yes, yes": {skip.All(yes, yes), true},
		"not no": {skip.Not(no), true}, "not yes": {skip.Not(yes), false},
	} {
		if got := tt.skip(requestWith()); got != tt.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	for name, wire := range map[string]func(){
		"Any: skips: must have at least one":   func() { skip.Any() },
		"Any: skips: number 2 must not be nil": func() { skip.Any(yes, nil) },
		"All: skips: must have at least one":   func() { skip.All() },
		"All: skips: number 1 must not be nil": func() { skip.All(nil) },
		"Not: skips: number 1 must not be nil": func() { skip.Not(nil) },
	} {
		checkPanic(t, wire, "skip: "+name)
	}
}

func TestSkipsAreAskedNoFurtherThanNeeded(t *testing.T) {
	yes, no := func(*http.Request) bool { return true }, func(*http.Request) bool { return false }
	never := func(*http.Request) bool { t.Error("asked"); return false }
	skip.Any(yes, never)(requestWith())
	skip.All(no, never)(requestWith())
}

func TestASkippedRequestSpendsNothing(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1))},
		Skip:     skip.All(skip.Paths("GET /healthz"), skip.IPs(ratelimit.PrivateNetworks...)),
	})
	inner := perIP("inner", ratelimit.PerHour(1))
	h := l.Handler(l.Limit(inner)(okHandler))
	serve := func(peer, path string, lines ...string) *httptest.ResponseRecorder {
		r := requestFrom(peer, lines...)
		r.URL.Path = path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for range 3 {
		w := serve(proxy, "/healthz")
		if w.Code != 200 || w.Body.String() != "ok" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for name := range w.Header() {
			if strings.Contains(strings.ToLower(name), "ratelimit") || name == "Retry-After" {
				t.Errorf("a skipped request got %s", name)
			}
		}
	}
	if w := serve(proxy, "/healthz", "X-Forwarded-For", "203.0.113.7"); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("the first that is limited: %d %v; want 200, and the only token taken by now", w.Code, w.Header())
	}
	if w := serve(proxy, "/"); w.Code != 429 {
		t.Errorf("another path: %d, want 429", w.Code)
	}
	if w := serve(proxy, "/healthz"); w.Code != 200 {
		t.Errorf("a health check after the limit: %d, want 200", w.Code)
	}
}

func TestChangingWhatSkipsWereMadeOfHasNoEffect(t *testing.T) {
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	never := func(*http.Request) bool { return false }
	skips := []func(*http.Request) bool{never}
	byIP, any, all := skip.IPs(prefixes...), skip.Any(skips...), skip.All(skips...)
	prefixes[0] = netip.MustParsePrefix("0.0.0.0/0")
	skips[0] = func(*http.Request) bool { return true }
	r := requestFrom(stranger)
	if byIP(r) || any(r) || all(r) {
		t.Error(byIP(r), any(r), all(r))
	}
}

// forgedHeaders and forgedValues are what clients send that want to pass for somebody else.
var (
	forgedHeaders = []string{
		"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via", "X-Forwarded", "Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded-Path", "X-Forwarded-Uri", "X-Forwarded-Method",
		"X-Client-Ip", "Client-Ip", "True-Client-Ip", "X-Cluster-Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Cf-Pseudo-Ipv4",
		"Fastly-Client-Ip", "Fly-Client-Ip", "X-Azure-Clientip", "X-Azure-Socketip", "X-Appengine-User-Ip", "X-Envoy-External-Address",
		"X-Envoy-Internal", "X-Envoy-Original-Path", "X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr", "Remote-Addr", "X-Host", "X-Original-Host",
		"X-Original-Url", "X-Original-Uri", "X-Original-Method", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override",
		"X-Custom-Ip-Authorization", "Proxy-Authorization", "User-Agent", "Referer", "Origin", "Host", "Upgrade", "X-Kubernetes-Probe",
	}
	forgedValues = []string{
		"10.0.0.1", "127.0.0.1", "::1", "for=10.0.0.1", `for="[::1]:80"`, "10.0.0.1, 10.0.0.2", "localhost",
		"GET", "HEAD", "/healthz", "http://localhost/healthz", "kube-probe/1.35", "ELB-HealthChecker/2.0", "",
	}
)

// No header makes a request of a stranger to an expensive path a skipped one, nor a path one of another.
func TestNoHeaderMakesARequestASkippedOne(t *testing.T) {
	const path = "/expensive"
	private := ratelimit.PrivateNetworks
	skips := map[string]func(*http.Request) bool{
		"by address": skip.IPs(private...),
		"by address behind proxies": skip.Any(
			skip.ClientIPs(ratelimit.IPConfig{TrustedProxies: ours}, private...),
			skip.ClientIPs(ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, private...),
			skip.ClientIPs(ratelimit.IPConfig{TrustedProxies: ours, EdgeHeader: "X-Real-IP"}, private...),
		),
		"by path": skip.Paths("GET /healthz", "HEAD /livez", "/static/", "/items/{id}/ping", "/{$}"),
	}
	for name, skip := range skips {
		l := newLimiter(t, ratelimit.Config{
			Policies: []ratelimit.Policy{{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerHour(1)}},
			Skip:     skip,
		})
		h := l.Handler(okHandler)
		status := func(r *http.Request) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		if first := status(parseRequest(t, "POST", path)); first != 200 {
			t.Fatalf("%s: the first request: %d", name, first)
		}
		for _, header := range forgedHeaders {
			for _, value := range forgedValues {
				r := parseRequest(t, "POST", path)
				r.Header[header] = []string{value}
				if header == "Host" {
					r.Host = value
				}
				if got := status(r); got != 429 {
					t.Errorf("%s: %s %q: %d", name, header, value, got)
				}
				// All the more if it comes through a proxy, which adds the client's address.
				r = parseRequest(t, "POST", path)
				r.RemoteAddr = proxy
				r.Header[header] = []string{value}
				for add, client := range map[string]string{"X-Forwarded-For": "198.51.100.1", "Forwarded": "for=198.51.100.1", "X-Real-Ip": "198.51.100.1"} {
					r.Header[add] = append(r.Header[add], client)
				}
				if got := status(r); got != 429 {
					t.Errorf("%s: %s %q through a proxy: %d", name, header, value, got)
				}
			}
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
// are exempt; and what skip.Preflights exempts can be nothing but a preflight.
func TestNoHandlerRunsWithoutAnEvent(t *testing.T) {
	const burst, requests = 3, 150
	skips := map[string]func(*http.Request) bool{
		"none":            nil,
		"skip.Preflights": skip.Preflights(),
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
						if skipName == "skip.Preflights" && (r.Method != "OPTIONS" || body > 0 || authorization || proxy || cookie) {
							t.Errorf("%s: the handler ran uncounted for %s %s %v", name, r.Method, r.URL, r.Header)
						}
					}
				}
				if counted == 0 || limit.Rate == burst && counted != burst {
					t.Errorf("%s: the handler ran for %d requests that count", name, counted)
				}
				if skip == nil && free > 0 || skipName == "skip.Preflights" && free == 0 {
					t.Errorf("%s: the handler ran for %d requests that do not count", name, free)
				}
			}
		}
	}
}

func TestSkipsAllocateNothingForPathsWithoutWildcards(t *testing.T) {
	skip := skip.Any(
		skip.All(skip.Paths("GET /healthz", "/static/", "GET /metrics/{$}"), skip.Not(skip.Paths("POST /static/{id}"))),
		skip.IPs(ratelimit.PrivateNetworks...),
		skip.ClientIPs(ratelimit.IPConfig{TrustedProxies: ours}, ratelimit.PrivateNetworks...),
	)
	for _, target := range []string{"/healthz", "/metrics/", "/api/v1/items/5", "/"} {
		r := parseRequest(t, "GET", target)
		r.Header.Set("X-Forwarded-For", "203.0.113.7, 198.51.100.1")
		r.RemoteAddr = proxy
		if got := testing.AllocsPerRun(100, func() { skip(r) }); got != 0 {
			t.Errorf("%s: %v allocations", target, got)
		}
	}
}

func BenchmarkSkip(b *testing.B) {
	paths := skip.Paths("GET /healthz", "GET /livez", "/static/", "/items/{id}/ping")
	ips := skip.IPs(ratelimit.PrivateNetworks...)
	for _, bb := range []struct {
		name   string
		skip   func(*http.Request) bool
		target string
		peer   string
	}{
		{"path", paths, "/healthz", stranger},
		{"path below", paths, "/static/css/main.css", stranger},
		{"path with a wildcard", paths, "/items/5/ping", stranger},
		{"another path", paths, "/api/v1/items/5", stranger},
		{"address", ips, "/", proxy},
		{"another address", ips, "/", stranger},
		{"path and address", skip.All(paths, ips), "/healthz", proxy},
	} {
		r := parseRequest(b, "GET", bb.target)
		r.RemoteAddr = bb.peer
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					bb.skip(r)
				}
			})
		})
	}
}
