package skip_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/skip"
)

// parseRequest returns a request as net/http's server reads it.
func parseRequest(t testing.TB, method, target string) *http.Request {
	t.Helper()
	r, err := readRequest(method, target)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readRequest(method, target string) (*http.Request, error) {
	raw := method + " " + target + " HTTP/1.1\r\nHost: api.example:8080\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err == nil {
		r.RemoteAddr = stranger
	}
	return r, err
}

func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		pattern, method, target string
		want                    bool
	}{
		{"/healthz", "GET", "/healthz", true},
		{"/healthz", "POST", "/healthz", true},
		{"/healthz", "BREW", "/healthz", true},
		{"/healthz", "GET", "/healthz?verbose=1", true},
		{"/healthz", "GET", "/healthz?", true},
		{"/healthz", "GET", "http://elsewhere.example/healthz", true}, // a form that proxies use
		{"/healthz", "GET", "/healthz/", false},
		{"/healthz", "GET", "/healthzz", false},
		{"/healthz", "GET", "/healthz/more", false},
		{"/healthz", "GET", "/HEALTHZ", false},
		{"/healthz", "GET", "/", false},
		{"/healthz", "GET", "/?/healthz", false},
		{"/healthz", "GET", "/healthz;a=b", false},

		{"GET /healthz", "GET", "/healthz", true},
		{"GET /healthz", "HEAD", "/healthz", true},
		{"GET\t /healthz", "GET", "/healthz", true},
		{"GET /healthz", "POST", "/healthz", false},
		{"GET /healthz", "OPTIONS", "/healthz", false},
		{"GET /healthz", "get", "/healthz", false},
		{"HEAD /healthz", "HEAD", "/healthz", true},
		{"HEAD /healthz", "GET", "/healthz", false},
		{"POST /healthz", "HEAD", "/healthz", false},

		{"/static/", "GET", "/static/", true},
		{"/static/", "GET", "/static/a/b.css", true},
		{"/static/", "GET", "/static/a/", true},
		{"/static/", "GET", "/static", false}, // a redirect
		{"/static/", "GET", "/statics", false},
		{"/metrics/{$}", "GET", "/metrics/", true},
		{"/metrics/{$}", "GET", "/metrics", false}, // a redirect
		{"/metrics/{$}", "GET", "/metrics/a", false},
		{"/{$}", "GET", "/", true},
		{"/{$}", "GET", "/a", false},
		{"/{$}", "GET", "http://api.example", false}, // the empty path
		{"/{id}/ping", "GET", "/5/ping", true},
		{"/{id}/ping", "GET", "/5/ping/", false},
		{"/{id}/ping", "GET", "/5/6/ping", false},
		{"/{id}/ping", "GET", "//ping", false},
		{"/files/{path...}", "GET", "/files/a/b", true},
		{"/files/{path...}", "GET", "/files/", true},
		{"/files/{path...}", "GET", "/files", false},
		{"GET /{path...}", "GET", "/a/b", true},
		{"GET /{path...}", "POST", "/a/b", false},

		// Routers differ on what is not clean.
		{"/healthz", "GET", "//healthz", false},
		{"/healthz", "GET", "/./healthz", false},
		{"/healthz", "GET", "/expensive/../healthz", false},
		{"/healthz", "GET", "/healthz/.", false},
		{"/healthz", "GET", "/healthz/..", false},
		{"/static/", "GET", "/static/../expensive", false},
		{"/static/", "GET", "/static//a", false},
		{"/static/", "GET", "/static/..", false},
		{"/static/", "CONNECT", "/static/../expensive", false},

		// And on what is escaped without need.
		{"/healthz", "GET", "/%68ealthz", false},
		{"/healthz", "GET", "/expensive/%2e%2e/healthz", false},
		{"/healthz", "GET", "/expensive%2F..%2Fhealthz", false},
		{"/static/", "GET", "/static%2Fa", false},
		{"/static/", "GET", "/static/a%2Fb", false},
		{"/static/", "GET", "/static/%2e%2e/expensive", false},
		{"/{id}/ping", "GET", "/a%2Fb/ping", false},
		{"/{id}/ping", "GET", "/%2e%2e/ping", false},
		// But not on what has to be escaped, or is the same as it stands.
		{"/static/", "GET", "/static/a%20b", true},
		{"/static/", "GET", "/static/a(1)!*'.css", true},
		{"/static/", "GET", "/static/%5B...slug%5D/page.js", true},
		{"/static/", "GET", "/static/.well-known/a..b", true},
		{"/a b", "GET", "/a%20b", true},
		{"/a%20b", "GET", "/a%20b", true},
		{"/a(1)", "GET", "/a(1)", true},
		{"/a(1)", "GET", "/a%281%29", true},
		{"/%7Bid%7D/{id}", "GET", "/%7Bid%7D/5", true},
		{"/%7Bid%7D/{id}", "GET", "/4/5", false},

		// Servers behind differ on these: parameters,
		{"/static/", "GET", "/static/..;/login", false},
		{"/static/", "GET", "/static/..;a=b/login", false},
		{"/static/", "GET", "/static/%2e%2e;x/login", false},
		{"/static/", "GET", "/static/..%3B/login", false},
		{"/static/", "GET", "/static/a;b", false},
		{"/static/", "GET", "/static/;/../login", false},
		{"/{id}/ping", "GET", "/login;/ping", false},
		// backslashes,
		{"/static/", "GET", "/static/..%5Clogin", false},
		{"/static/", "GET", "/static/..%5clogin", false},
		{"/static/", "GET", `/static/..\login`, false},
		{"/static/", "GET", "/static/a%5C..%5Cb", false},
		{"/static/", "GET", "/%5Cstatic/a", false},
		// control characters,
		{"/static/", "GET", "/static/..%00/login", false},
		{"/static/", "GET", "/static/.%00./login", false},
		{"/static/", "GET", "/static/.%0D./login", false},
		{"/static/", "GET", "/static/.%09./login", false},
		{"/static/", "GET", "/static/a%7F", false},
		{"/static/", "GET", "/static/a%0d%0aX:b", false},
		{"/{id}/ping", "GET", "/login%00/ping", false},
		// what is escaped twice, or not again,
		{"/static/", "GET", "/static/%252e%252e/login", false},
		{"/static/", "GET", "/static/..%252flogin", false},
		{"/static/", "GET", "/static/a%252Fb", false},
		{"/static/", "GET", "/static/%25u002e./login", false},
		{"/{id}/ping", "GET", "/login%3F/ping", false},
		{"/{id}/ping", "GET", "/login%23/ping", false},
		// dots and blanks that are lost,
		{"/static/", "GET", "/static/.../login", false},
		{"/static/", "GET", "/static/..%20/login", false},
		{"/static/", "GET", "/static/%20../login", false},
		{"/static/", "GET", "/static/..+/login", false},
		{"/static/", "GET", "/static/+../login", false},
		{"/static/", "GET", "/static/..a/login", false},
		{"/static/", "GET", "/static/a./b", false},
		{"/static/", "GET", "/static/a.", false},
		{"/{id}/ping", "GET", "/%20/ping", false},
		{"/{id}/ping", "GET", "/.%20/ping", false},
		{"/{id}/ping", "GET", "/login+/ping", false},
		// and what is not ASCII: full-width forms, runes whose low byte is a dot or a slash, overlong UTF-8.
		{"/static/", "GET", "/static/%EF%BC%8E%EF%BC%8E/login", false},
		{"/static/", "GET", "/static/..%EF%BC%8Flogin", false},
		{"/static/", "GET", "/static/%E2%80%A5/login", false},
		{"/static/", "GET", "/static/..%CD%BE/login", false},
		{"/static/", "GET", "/static/%C4%AE%C4%AE/login", false},
		{"/static/", "GET", "/static/..%C4%AFlogin", false},
		{"/static/", "GET", "/static/%C0%AE%C0%AE/login", false},
		{"/static/", "GET", "/static/..%C0%AFlogin", false},
		{"/static/", "GET", "/static/%C3%A9", false},
		{"/static/", "GET", "/static/..%C2%A0/login", false},
		{"/static/", "GET", "/static/a%C2%85", false},

		{"/healthz", "CONNECT", "/healthz", false},
		{"/healthz", "CONNECT", "healthz:443", false},
		{"/healthz", "CONNECT", "http://api.example/healthz", false},
		{"/{path}", "OPTIONS", "*", false},
		{"/*", "OPTIONS", "*", false},
		{"/healthz", "GET", "api:healthz", false}, // an opaque URL
	} {
		pattern := tt.pattern
		if strings.Contains(pattern, " b") { // a blank would end the method
			pattern = "GET " + pattern
		}
		t.Run(pattern+" of "+tt.method+" "+tt.target, func(t *testing.T) {
			if got := skip.Paths(pattern)(parseRequest(t, tt.method, tt.target)); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// To look at a path of a megabyte takes milliseconds. So it is not exempt, for its length alone.
func TestAPathOfMoreThan8KiBIsNotExempt(t *testing.T) {
	exempt := skip.Paths("GET /static/", "/{id}/ping")
	for _, form := range []string{"/static/%s", "/%s/ping"} {
		for length, want := range map[int]bool{8 << 10: true, 8<<10 + 1: false, 1 << 20: false} {
			path := fmt.Sprintf(form, strings.Repeat("a", length-len(form)+len("%s")))
			if got := exempt(parseRequest(t, "GET", path)); got != want {
				t.Errorf("%s with %d bytes: got %t", form, length, got)
			}
		}
	}
}

func TestPathsOfSeveralPatterns(t *testing.T) {
	skip := skip.Paths("GET /healthz", "POST /healthz", "/static/", "GET /static/{$}", "/items/{id}/ping", "GET /items/5/ping")
	for target, want := range map[string]bool{
		"GET /healthz": true, "POST /healthz": true, "PUT /healthz": false,
		"GET /static/": true, "POST /static/": true, "GET /static/a": true, "POST /items/5/ping": true, "GET /items/5/ping": true,
		"GET /items/5/pong": false,
	} {
		method, path, _ := strings.Cut(target, " ")
		if got := skip(parseRequest(t, method, path)); got != want {
			t.Errorf("%s: got %t", target, got)
		}
	}
}

// http.ServeMux would refuse these together, because it has to choose.
func TestPathsTakesPatternsThatOverlap(t *testing.T) {
	skip := skip.Paths("/static/", "/{id}/ping", "/{a}/b", "/a/{b}", "GET /a", "GET /a")
	for target, want := range map[string]bool{
		"/static/ping": true, "/static/a": true, "/5/ping": true, "/a/b": true, "/a/c": true, "/c/b": true, "/a": true,
		"/c/d": false, "/a/b/c": false, "/static": false, "/static/../c": false,
	} {
		if got := skip(parseRequest(t, "GET", target)); got != want {
			t.Errorf("%s: got %t", target, got)
		}
	}
}

func TestPathsPanicsOnMalformedPatterns(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patterns []string
		wants    []string
	}{
		{"None", nil, []string{"patterns: must have at least one"}},
		{"An empty one", []string{""}, []string{`patterns: "": `}},
		{"No slash", []string{"healthz"}, []string{`patterns: "healthz": `}},
		{"A method that is none", []string{"G(T /healthz"}, []string{`patterns: "G(T /healthz": `, "invalid method"}},
		{"A method alone", []string{"GET "}, []string{`patterns: "GET ": `}},
		{"A malformed wildcard", []string{"/a{b}"}, []string{`patterns: "/a{b}": `, "wildcard"}},
		{"A wildcard of a bad name", []string{"/{b-c}"}, []string{`patterns: "/{b-c}": `, "b-c"}},
		{"A wildcard twice", []string{"/{b}/{b}"}, []string{`patterns: "/{b}/{b}": `, "duplicate"}},
		{"An end that is none", []string{"/{$}/a"}, []string{`patterns: "/{$}/a": `}},
		{"A host", []string{"admin.example/healthz"}, []string{`patterns: "admin.example/healthz": must not name a host`}},
		{"A method and a host", []string{"GET admin.example/healthz"}, []string{`patterns: "GET admin.example/healthz": must not name a host`}},
		{"The root, which is everything", []string{"/"}, []string{`patterns: "/": matches every path`, `"/{$}"`}},
		{"The root for a method", []string{"GET /"}, []string{`patterns: "GET /": matches every path`, `"/{$}"`}},
		{"Everything", []string{"/{path...}"}, []string{`patterns: "/{path...}": matches every request`}},
		{"A path that is not clean", []string{"//healthz"}, []string{`patterns: "//healthz": would never match`, "clean"}},
		{"A path that goes back", []string{"/a/../healthz"}, []string{`patterns: "/a/../healthz": would never match`}},
		{"A path that is not clean, for a method", []string{"GET //healthz"}, []string{`patterns: "GET //healthz": `, "never match"}},
		{"An escaped slash", []string{"/a%2Fb"}, []string{`patterns: "/a%2Fb": would never match`, "escaped slashes"}},
		{"A path that is not clean once unescaped", []string{"/%2e%2e"}, []string{`patterns: "/%2e%2e": would never match`}},
		{"A parameter", []string{"/healthz;a"}, []string{`patterns: "/healthz;a": would never match`}},
		{"An escaped parameter", []string{"/healthz%3Ba"}, []string{`patterns: "/healthz%3Ba": would never match`}},
		{"A parameter beyond a wildcard", []string{"/{id}/a;b/"}, []string{`patterns: "/{id}/a;b/": would never match`}},
		{"A backslash", []string{`/a\b`}, []string{"would never match"}},
		{"A control character", []string{"/a%00"}, []string{"would never match"}},
		{"A percent sign", []string{"/%zz"}, []string{"would never match"}},
		{"Beyond ASCII", []string{"/é"}, []string{"would never match"}},
		{"A dot at the end", []string{"/a."}, []string{"would never match"}},
		{"CONNECT", []string{"CONNECT /healthz"}, []string{`patterns: "CONNECT /healthz": would never match`, "CONNECT"}},
		{"Bytes that would break a log", []string{"/a{\n\x1b[31m"}, []string{`patterns: "/a{\n\x1b[31m": `}},
		{"Several at once", []string{"/ok", "x", "GET /"}, []string{`"x": `, `"GET /": `}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkPanic(t, func() { skip.Paths(tt.patterns...) }, append(tt.wants, "skip: Paths: ")...)
		})
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

func TestIPs(t *testing.T) {
	exempt := skip.IPs(netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:2::/48"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("198.18.5.5/15"))
	for _, tt := range []struct {
		name, peer string
		want       bool
	}{
		{"A peer within", "192.0.2.1:1234", true},
		{"A peer without a port", "192.0.2.1", true},
		{"A peer of the next network", "192.0.3.1:1234", false},
		{"A mapped peer", "[::ffff:192.0.2.1]:1234", true},
		{"A mapped peer with a zone", "[::ffff:192.0.2.1%eth0]:1234", true},
		{"An IPv6 peer", "[2001:db8:2::1]:1234", true},
		{"An IPv6 peer of the next network, though perhaps of the same key", "[2001:db8:3::1]:1234", false},
		{"A peer with a zone", "[fe80::1%eth0]:1234", true},
		{"A peer of a prefix that is not masked", "198.19.0.1:1234", true},
		{"A peer on a Unix socket", "@", false},
		{"No peer", "", false},
		{"A host name", "localhost:1234", false},
		{"The unspecified address", "0.0.0.0:1234", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := exempt(requestFrom(tt.peer)); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if everyIPv6 := skip.IPs(netip.MustParsePrefix("::/0")); everyIPv6(requestFrom("[::ffff:192.0.2.1]:1")) {
		t.Error("all of IPv6 includes mapped IPv4")
	}
	all := skip.IPs(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	if all(requestFrom("0.0.0.0:1")) || all(requestFrom("[::]:1")) || all(requestFrom("@")) || !all(requestFrom("[::1]:1")) {
		t.Error("what has no address is in a network")
	}
}

func TestPrivateNetworks(t *testing.T) {
	exempt := skip.IPs(ratelimit.PrivateNetworks...)
	for _, addr := range strings.Fields(`10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255
		100.64.0.0 100.127.255.255 169.254.0.0 169.254.255.255 127.0.0.1 127.255.255.255
		fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe80:: febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::1 ::ffff:10.0.0.1`) {
		if !exempt(requestFrom(addr)) {
			t.Errorf("%s is not private", addr)
		}
	}
	for _, addr := range strings.Fields(`9.255.255.255 11.0.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0
		100.63.255.255 100.128.0.0 169.253.255.255 169.255.0.0 126.255.255.255 128.0.0.0 8.8.8.8 192.0.2.1
		fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe00:: fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff fec0:: :: ::2 2001:db8::1 ::ffff:8.8.8.8`) {
		if exempt(requestFrom(addr)) {
			t.Errorf("%s is private", addr)
		}
	}
	// They are fit for proxies, too.
	f := ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.PrivateNetworks})
	checkKey(t, f, requestFrom("[::1]:80", "X-Forwarded-For", "203.0.113.7, 192.0.2.1, fd00::1, 100.64.0.1"), "ip:192.0.2.1")
}

// A load balancer's address is private, and so is that of all its clients to who does not look further.
func TestIPsDoesNotTakeAProxyForItsClients(t *testing.T) {
	private := skip.IPs(ratelimit.PrivateNetworks...)
	behindOurs := skip.ClientIPs(ratelimit.IPConfig{TrustedProxies: ours}, ratelimit.PrivateNetworks...)
	if r := requestFrom(proxy); !private(r) || !behindOurs(r) {
		t.Error("the load balancer's own health check is limited")
	}
	for _, name := range []string{
		"X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Proto", "X-Forwarded-Host",
		"CF-Connecting-IP", "True-Client-IP", "X-Client-IP", "X-Cluster-Client-IP",
	} {
		for _, value := range []string{"192.0.2.1", "10.0.0.1", "", "garbage"} {
			r := requestFrom(proxy, name, value)
			if private(r) {
				t.Errorf("%s %q: the world is skipped", name, value)
			}
			// A proxy of ours that writes another header than it should, or nothing into it.
			if got := behindOurs(r); got && !(name == "X-Forwarded-For" && value == "10.0.0.1") {
				t.Errorf("%s %q: the world is skipped behind a trusted proxy", name, value)
			}
		}
	}
}

func TestIPsBehindProxies(t *testing.T) {
	office := netip.MustParsePrefix("192.0.2.0/24")
	const xff = "X-Forwarded-For"
	trusted := ratelimit.IPConfig{TrustedProxies: ours}
	for _, tt := range []struct {
		name  string
		cfg   ratelimit.IPConfig
		peer  string
		lines []string
		want  bool
	}{
		{"The office behind a proxy", trusted, proxy, []string{xff, "192.0.2.1"}, true},
		{"The office behind two", trusted, proxy, []string{xff, "192.0.2.1, 10.0.0.2"}, true},
		{"The office, mapped", trusted, proxy, []string{xff, "::ffff:192.0.2.1"}, true},
		{"A stranger behind a proxy", trusted, proxy, []string{xff, "203.0.113.7"}, false},
		{"A stranger that forges the office", trusted, proxy, []string{xff, "192.0.2.1, 203.0.113.7"}, false},
		{"A stranger that forges the office on a line", trusted, proxy, []string{xff, "192.0.2.1", xff, "203.0.113.7"}, false},
		{"A stranger that forges the office, directly", trusted, stranger, []string{xff, "192.0.2.1"}, false},
		{"A hidden client", trusted, proxy, []string{xff, "192.0.2.1, unknown"}, false},
		{"The office, directly", trusted, "192.0.2.1:1234", nil, true},
		{"The office behind a proxy of its own, which may be anybody's", trusted, "192.0.2.1:1234", []string{xff, "203.0.113.7"}, false},
		{"The proxy itself", trusted, proxy, nil, false},
		{"Forwarded", ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, proxy, []string{"Forwarded", "for=192.0.2.1"}, true},
		{"Forwarded, where the other header is forged", ratelimit.IPConfig{TrustedProxies: ours, Header: "Forwarded"}, proxy, []string{"Forwarded", "for=203.0.113.7", xff, "192.0.2.1"}, false},
		{"A count", ratelimit.IPConfig{ProxyCount: 1}, proxy, []string{xff, "203.0.113.7, 192.0.2.1"}, true},
		{"A count, forged", ratelimit.IPConfig{ProxyCount: 1}, proxy, []string{xff, "192.0.2.1, 203.0.113.7"}, false},
		{"A count, with nothing to count", ratelimit.IPConfig{ProxyCount: 1}, "192.0.2.1:1234", nil, false},
		{"An edge", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours}, proxy, []string{"X-Real-IP", "192.0.2.1"}, true},
		{"An edge, around which a stranger comes", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours}, stranger, []string{"X-Real-IP", "192.0.2.1"}, false},
		{"An edge that sends nothing", ratelimit.IPConfig{EdgeHeader: "X-Real-IP", TrustedProxies: ours}, proxy, nil, false},
		{"IPv6Bits do not matter", ratelimit.IPConfig{IPv6Bits: 32}, "192.0.2.1:1234", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := skip.ClientIPs(tt.cfg, office)(requestFrom(tt.peer, tt.lines...)); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestIPsByTheContext(t *testing.T) {
	exempt := skip.ClientIPs(ratelimit.IPConfig{Context: middleware.GetClientIPAddr}, ratelimit.PrivateNetworks...)
	serve := func(chis func(http.Handler) http.Handler, r *http.Request) (skipped bool) {
		chis(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { skipped = exempt(r) })).ServeHTTP(httptest.NewRecorder(), r)
		return skipped
	}
	xff := middleware.ClientIPFromXFF("10.0.0.0/24")
	if !serve(xff, requestFrom(proxy, "X-Forwarded-For", "10.1.0.1")) || serve(xff, requestFrom(proxy, "X-Forwarded-For", "10.1.0.1, 203.0.113.7")) {
		t.Error("behind a proxy")
	}
	// Who takes the peer for the client behind a proxy does not exempt the world.
	peer := middleware.ClientIPFromRemoteAddr
	if !serve(peer, requestFrom(proxy)) || serve(peer, requestFrom(proxy, "X-Forwarded-For", "203.0.113.7")) {
		t.Error("by the peer")
	}
	if exempt(requestFrom(proxy)) {
		t.Error("without a context")
	}
}

func TestContradictoryIPsPanics(t *testing.T) {
	mapped := netip.MustParsePrefix("::ffff:10.0.0.0/104")
	for _, tt := range []struct {
		name  string
		wire  func()
		wants []string
	}{
		{"No prefixes", func() { skip.IPs() }, []string{"IPs: prefixes: must have at least one"}},
		{"An invalid prefix", func() { skip.IPs(ratelimit.PrivateNetworks[0], netip.Prefix{}) }, []string{"IPs: prefixes: holds an invalid prefix"}},
		{"A mapped prefix", func() { skip.IPs(mapped) }, []string{"IPs: prefixes: ::ffff:10.0.0.0/104: must be written as IPv4"}},
		{"No prefixes behind proxies", func() { skip.ClientIPs(ratelimit.IPConfig{ProxyCount: 1}) }, []string{"ClientIPs: prefixes: must have at least one"}},
		{"Everything at once", func() { skip.ClientIPs(ratelimit.IPConfig{ProxyCount: -1, IPv6Bits: 1}, mapped) }, []string{"ClientIPs: ", "ProxyCount -1", "IPv6Bits 1", "prefixes: "}},
	} {
		t.Run(tt.name, func(t *testing.T) { checkPanic(t, tt.wire, append(tt.wants, "skip: ")...) })
	}
}

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

// A server behind the limiter may obey a header that names another path or method.
func TestAPathIsNotSkippedWhereAHeaderNamesAnother(t *testing.T) {
	skip := skip.Paths("GET /static/")
	for _, name := range []string{"X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		r := parseRequest(t, "GET", "/static/a")
		if !skip(r) {
			t.Fatal("not skipped without the header")
		}
		r.Header.Set(name, "/login")
		if skip(r) {
			t.Errorf("skipped with %s", name)
		}
	}
}

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

// A patternRoute is a pattern of SkipPaths, with routers that serve it alone.
type patternRoute struct {
	pattern string
	skip    func(*http.Request) bool
	mux     *http.ServeMux
	router  chi.Router
	method  string // which router serves it for; "" for any
}

func newPatternRoute(pattern, method, chis string) patternRoute {
	p := patternRoute{pattern, skip.Paths(pattern), http.NewServeMux(), chi.NewRouter(), method}
	p.mux.Handle(pattern, writes("the route"))
	p.router.NotFound(writes("not found"))
	p.router.MethodNotAllowed(writes("method not allowed"))
	switch method {
	case "":
		p.router.Handle(chis, writes("the route"))
	case "GET":
		p.router.Head(chis, writes("the route")) // as http.ServeMux has it
		fallthrough
	default:
		p.router.Method(method, chis, writes("the route"))
	}
	return p
}

func writes(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s) }
}

// plain reports whether all servers read a path alike, once it is unescaped.
func plain(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment != "" && !plainSegment.MatchString(segment) || strings.HasPrefix(segment, "..") {
			return false
		}
	}
	return true
}

var plainSegment = regexp.MustCompile(`^[^\x00-\x20\x7f-\x{10ffff};\\%?#+]([^\x00-\x1f\x7f-\x{10ffff};\\%?#]*[^\x00-\x20\x7f-\x{10ffff};\\%?#+.])?$`)

// readings are what servers make of a path that has been unescaped, before they clean it.
var readings = map[string]func(string) string{
	"parameters are cut off":       func(p string) string { return regexp.MustCompile(`;[^/]*`).ReplaceAllString(p, "") },
	"a backslash is a slash":       func(p string) string { return strings.ReplaceAll(p, `\`, "/") },
	"control characters are lost":  func(p string) string { return regexp.MustCompile(`[\x00-\x1f\x7f]`).ReplaceAllString(p, "") },
	"a control character ends it":  func(p string) string { return regexp.MustCompile(`[\x00-\x1f].*`).ReplaceAllString(p, "") },
	"it is escaped no more":        func(p string) string { return regexp.MustCompile(`[?#].*`).ReplaceAllString(p, "") },
	"blanks around segments":       func(p string) string { return regexp.MustCompile(`[ +]+(/|$)|(/)[ +]+`).ReplaceAllString(p, "$1$2") },
	"blanks and dots at their end": func(p string) string { return regexp.MustCompile(`([^/. ])[. ]+(/|$)`).ReplaceAllString(p, "$1$2") },
	"many dots are two":            func(p string) string { return regexp.MustCompile(`/\.\.[. +]+(/|$)`).ReplaceAllString(p, "/..$1") },
	"full-width forms are folded": func(p string) string {
		return strings.Map(func(r rune) rune {
			if 0xff01 <= r && r <= 0xff5e {
				r -= 0xfee0
			}
			return r
		}, p)
	},
	"runes are cut": func(p string) string {
		return strings.Map(func(r rune) rune { return r & 0xff }, p)
	},
	"overlong UTF-8": func(p string) string {
		return strings.NewReplacer("\xc0\xae", ".", "\xc0\xaf", "/", "\xc1\x9c", `\`).Replace(p)
	},
	"it is unescaped twice": func(p string) string {
		if twice, err := url.PathUnescape(p); err == nil {
			p = twice
		}
		return p
	},
}

// resolve cleans a path as servers do.
func resolve(p string) string {
	cleaned := path.Clean(p)
	if strings.HasSuffix(p, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned
}

// check checks that a request is exempt if and only if http.ServeMux serves it by the pattern, unless servers
// differ on its path, and that chi serves what is exempt by the same route, and so does any other server.
func (p patternRoute) check(t *testing.T, method, target string) {
	t.Helper()
	r, err := readRequest(method, target)
	if err != nil {
		return // net/http's server would not have it, either
	}
	skipped, byMux := p.skip(r), served(p.mux, r) == "the route"
	if skipped && !byMux {
		t.Errorf("%q of %s %q is skipped, but http.ServeMux does not serve it", p.pattern, method, target)
	}
	ordinary := method != "CONNECT" && (r.URL.RawPath == "" || r.URL.RawPath == r.URL.Path) && plain(r.URL.Path)
	if byMux && ordinary && !skipped {
		t.Errorf("%q of %s %q is not skipped, but http.ServeMux serves it", p.pattern, method, target)
	}
	for reading, read := range readings {
		if !skipped {
			break
		}
		elsewhere := r.Clone(t.Context())
		elsewhere.URL = &url.URL{Path: resolve(read(r.URL.Path))}
		if served(p.mux, elsewhere) != "the route" {
			t.Errorf("%q of %s %q is skipped, but where %s it is %q", p.pattern, method, target, reading, elsewhere.URL.Path)
		}
	}
	want := "the route"
	if p.method == "" && !slices.Contains(chisMethods, method) {
		want = "method not allowed"
	}
	if byChi := served(p.router, r); skipped && byChi != want {
		t.Errorf("%q of %s %q is skipped, but chi has for it: %s", p.pattern, method, target, byChi)
	}
}

// chisMethods are all that chi knows.
var chisMethods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

// FuzzPaths takes the number of a pattern, and a request line.
func FuzzPaths(f *testing.F) {
	patterns := []patternRoute{
		newPatternRoute("/healthz", "", "/healthz"),
		newPatternRoute("GET /healthz", "GET", "/healthz"),
		newPatternRoute("POST /a/b", "POST", "/a/b"),
		newPatternRoute("/static/", "", "/static/*"),
		newPatternRoute("GET /static/", "GET", "/static/*"),
		newPatternRoute("/metrics/{$}", "", "/metrics/"),
		newPatternRoute("/{$}", "", "/"),
		newPatternRoute("/{id}/ping", "", "/{id}/ping"),
		newPatternRoute("GET /{id}", "GET", "/{id}"),
		newPatternRoute("/{a}/{b}", "", "/{a}/{b}"),
		newPatternRoute("/{a}/{b}/", "", "/{a}/{b}/*"),
		newPatternRoute("/files/{path...}", "", "/files/*"),
		newPatternRoute("GET /{path...}", "GET", "/*"),
		newPatternRoute("GET /a%20b", "GET", "/a b"),
		newPatternRoute("/a(1)", "", "/a(1)"),
	}
	f.Fuzz(func(t *testing.T, n uint8, method, target string) {
		patterns[int(n)%len(patterns)].check(t, method, target)
	})
}

func TestASkippedPathIsServedByItsOwnRoute(t *testing.T) {
	router := chi.NewRouter()
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerHour(1)}},
		Skip:     skip.Paths("GET /healthz", "/static/", "/{id}/ping"),
	})
	router.Use(l.Handler)
	router.Get("/healthz", writes("cheap"))
	router.Get("/static/*", writes("cheap"))
	router.Get("/{id}/ping", writes("cheap"))
	router.Get("/expensive/*", writes("expensive"))
	router.Get("/{a}", writes("expensive"))
	router.Get("//*", writes("expensive"))
	status := func(target string) string {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, parseRequest(t, "GET", target))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	if got := status("/expensive/first"); got != "200 expensive" {
		t.Fatal(got)
	}
	for _, target := range []string{"/healthz", "/static/a", "/static/", "/5/ping", "/a%20b/ping"} {
		if got := status(target); got != "200 cheap" {
			t.Errorf("%s: %s", target, got)
		}
	}
	for _, target := range []string{
		"/expensive/../healthz", "/expensive/%2e%2e/healthz", "//healthz", "/expensive%2f..%2fhealthz", "/%68ealthz",
		"/expensive/..%2fstatic/a", "/expensive%2fping", "/healthz%2f..%2fexpensive", "/expensive/./../5/ping",
		"/static/..;/expensive/a", "/static/..;x=/expensive/a", "/static/%2e%2e;x/expensive/a", "/static/..%5Cexpensive/a", "/static/..%00/expensive/a",
		"/static/%252e%252e/expensive/a", "/static/.../expensive/a", "/static/..%20/expensive/a", "/static/%EF%BC%8E%EF%BC%8E/expensive/a",
		"/static/%C0%AE%C0%AE/expensive/a", "/expensive;/ping", "/%20/ping", "/healthz;x",
	} {
		if got := status(target); !strings.HasPrefix(got, "429 ") {
			t.Errorf("%s: %s; want 429", target, got)
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
