package skip_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

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

// A target that ServeMux answers with a redirect, such as /static for /static/, is limited.
func TestPaths(t *testing.T) {
	for _, tt := range []struct{ pattern, methods, exempt, limited string }{
		{"/healthz", "GET", "/healthz /healthz?verbose=1 /healthz? http://elsewhere.example/healthz", "/healthz/ /healthzz /healthz/more /HEALTHZ / /?/healthz /healthz;a=b"},
		{"/healthz", "POST BREW", "/healthz", ""},

		{"GET /healthz", "GET HEAD", "/healthz", ""},
		{"GET\t /healthz", "GET", "/healthz", ""},
		{"GET /healthz", "POST OPTIONS get", "", "/healthz"},
		{"HEAD /healthz", "HEAD", "/healthz", ""},
		{"HEAD /healthz", "GET", "", "/healthz"},
		{"POST /healthz", "HEAD", "", "/healthz"},

		{"/static/", "GET", "/static/ /static/a/b.css /static/a/", "/static /statics"},
		{"/metrics/{$}", "GET", "/metrics/", "/metrics /metrics/a"},
		{"/{$}", "GET", "/", "/a http://api.example"}, // the latter has the empty path
		{"/{id}/ping", "GET", "/5/ping", "/5/ping/ /5/6/ping //ping"},
		{"/files/{path...}", "GET", "/files/a/b /files/", "/files"},
		{"GET /{path...}", "GET", "/a/b", ""},
		{"GET /{path...}", "POST", "", "/a/b"},

		// Routers differ on what is not clean.
		{"/healthz", "GET", "", "//healthz /./healthz /expensive/../healthz /healthz/. /healthz/.."},
		{"/static/", "GET", "", "/static/../expensive /static//a /static/.."},
		{"/static/", "CONNECT", "", "/static/../expensive"},

		// And on what is escaped without need.
		{"/healthz", "GET", "", "/%68ealthz /expensive/%2e%2e/healthz /expensive%2F..%2Fhealthz"},
		{"/static/", "GET", "", "/static%2Fa /static/a%2Fb /static/%2e%2e/expensive"},
		{"/{id}/ping", "GET", "", "/a%2Fb/ping /%2e%2e/ping"},
		// But not on what has to be escaped, or is the same as it stands.
		{"/static/", "GET", "/static/a%20b /static/a(1)!*'.css /static/%5B...slug%5D/page.js /static/.well-known/a..b", ""},
		{"/a b", "GET", "/a%20b", ""},
		{"/a%20b", "GET", "/a%20b", ""},
		{"/a(1)", "GET", "/a(1) /a%281%29", ""},
		{"/%7Bid%7D/{id}", "GET", "/%7Bid%7D/5", "/4/5"},

		// Servers behind differ on these: parameters,
		{"/static/", "GET", "", "/static/..;/login /static/..;a=b/login /static/%2e%2e;x/login /static/..%3B/login /static/a;b /static/;/../login"},
		{"/{id}/ping", "GET", "", "/login;/ping"},
		// backslashes,
		{"/static/", "GET", "", `/static/..%5Clogin /static/..%5clogin /static/..\login /static/a%5C..%5Cb /%5Cstatic/a`},
		// control characters,
		{"/static/", "GET", "", "/static/..%00/login /static/.%00./login /static/.%0D./login /static/.%09./login /static/a%7F /static/a%0d%0aX:b"},
		{"/{id}/ping", "GET", "", "/login%00/ping"},
		// what is escaped twice, or not again,
		{"/static/", "GET", "", "/static/%252e%252e/login /static/..%252flogin /static/a%252Fb /static/%25u002e./login"},
		{"/{id}/ping", "GET", "", "/login%3F/ping /login%23/ping"},
		// dots and blanks that are lost,
		{"/static/", "GET", "", "/static/.../login /static/..%20/login /static/%20../login /static/..+/login /static/+../login /static/..a/login /static/a./b /static/a."},
		{"/{id}/ping", "GET", "", "/%20/ping /.%20/ping /login+/ping"},
		// and what is not ASCII: full-width forms, runes whose low byte is a dot or a slash, overlong UTF-8.
		{"/static/", "GET", "", "/static/%EF%BC%8E%EF%BC%8E/login /static/..%EF%BC%8Flogin /static/%E2%80%A5/login /static/..%CD%BE/login"},
		{"/static/", "GET", "", "/static/%C4%AE%C4%AE/login /static/..%C4%AFlogin /static/%C0%AE%C0%AE/login /static/..%C0%AFlogin /static/%C3%A9 /static/..%C2%A0/login /static/a%C2%85"},

		{"/healthz", "CONNECT", "", "/healthz healthz:443 http://api.example/healthz"},
		{"/{path}", "OPTIONS", "", "*"},
		{"/*", "OPTIONS", "", "*"},
		{"/healthz", "GET", "", "api:healthz"}, // an opaque URL
	} {
		pattern := tt.pattern
		if strings.Contains(pattern, " b") { // a blank would end the method
			pattern = "GET " + pattern
		}
		exempt := skip.Paths(pattern)
		for _, method := range strings.Fields(tt.methods) {
			for want, targets := range map[bool]string{true: tt.exempt, false: tt.limited} {
				for _, target := range strings.Fields(targets) {
					if got := exempt(parseRequest(t, method, target)); got != want {
						t.Errorf("%s of %s %s: got %t", pattern, method, target, got)
					}
				}
			}
		}
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

func TestPathsPanicsOnMalformedPatterns(t *testing.T) {
	for want, patterns := range map[string][]string{
		"":                     {"", "healthz", "GET ", "/{$}/a", "/a{\n\x1b[31m"}, // in the words of ServeMux, and the last without what would break a log
		"invalid method":       {"G(T /healthz"},
		"wildcard":             {"/a{b}"},
		"b-c":                  {"/{b-c}"},
		"duplicate":            {"/{b}/{b}"},
		"must not name a host": {"admin.example/healthz", "GET admin.example/healthz"},
		"matches every path: for the root alone write \"/{$}\"": {"/", "GET /"},
		"matches every request":                                 {"/{path...}"},
		"never match":                                           {"GET //healthz"},
		"would never match": {
			"//healthz", "/a/../healthz", "/a%2Fb", "/%2e%2e", "/healthz;a", "/healthz%3Ba", "/{id}/a;b/",
			`/a\b`, "/a%00", "/%zz", "/é", "/a.", "CONNECT /healthz",
		},
	} {
		for _, pattern := range patterns {
			checkPanic(t, func() { skip.Paths(pattern) }, "skip: Paths: ", fmt.Sprintf("patterns: %q: ", pattern), want)
		}
	}
	checkPanic(t, func() { skip.Paths() }, "skip: Paths: patterns: must have at least one")
	checkPanic(t, func() { skip.Paths("/ok", "x", "GET /") }, "skip: Paths: ", `"x": `, `"GET /": `)
}

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

// A patternRoute is a pattern of skip.Paths, with routers that serve it alone.
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
