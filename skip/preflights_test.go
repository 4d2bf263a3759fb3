package skip_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
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

func TestAPreflightTriesNoPasswords(t *testing.T) {
	for name, skip := range map[string]func(*http.Request) bool{"no skip": nil, "skip.Preflights": skip.Preflights()} {
		login := perIP("login", ratelimit.PerHour(3))
		login.Settle, login.FailClosed = ratelimit.FailedLogins, true
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{login}, Skip: skip})
		tried := 0
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tried++
			w.WriteHeader(http.StatusUnauthorized)
		}))
		for i := range 500 {
			ratetest.Get(h, append(slices.Clone(preflight), func(r *http.Request) { r.SetBasicAuth("admin", fmt.Sprint(i)) })...)
		}
		if tried != 3 {
			t.Errorf("%s: %d passwords were tried, want 3", name, tried)
		}
	}
}
