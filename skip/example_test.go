package skip_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/skip"
)

// statusFrom serves a request of a TCP peer, and returns the answer's status.
func statusFrom(h http.Handler, peer, path string) int {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = peer
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Health checks from your own networks are not limited. Health checks from elsewhere are.
func ExampleAll() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)}},
		Skip: skip.All(
			skip.Paths("GET /healthz", "GET /livez"),
			skip.IPs(ratelimit.PrivateNetworks...),
		),
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)

	for range 3 {
		fmt.Println(statusFrom(handler, "10.0.0.1:80", "/healthz"), statusFrom(handler, "192.0.2.1:1234", "/healthz"))
	}
	// Output:
	// 200 200
	// 200 429
	// 200 429
}

// All static files are exempt, except uploads.
func ExampleNot() {
	exempt := skip.All(
		skip.Paths("/static/"),
		skip.Not(skip.Paths("/static/upload/")),
	)
	for _, path := range []string{"/static/a.css", "/static/upload/a.css", "/static/x/../upload/a.css"} {
		fmt.Println(path, exempt(httptest.NewRequest("GET", path, nil)))
	}
	// Output:
	// /static/a.css true
	// /static/upload/a.css false
	// /static/x/../upload/a.css false
}

// A router that answers preflights inside the limiter. If you can mount CORS outside the limiter, no exemption is
// needed.
func ExamplePreflights() {
	router := http.NewServeMux()
	router.HandleFunc("OPTIONS /items", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://app.example")
		w.WriteHeader(http.StatusNoContent)
	})
	router.Handle("GET /items", hello)
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)}},
		Skip:     skip.Preflights(),
	}))
	defer limiter.Close()
	handler := limiter.Handler(router)

	preflight := []string{"Origin", "https://app.example", "Access-Control-Request-Method", "GET"}
	printResponse(handler, "OPTIONS", "/items", preflight...)
	printResponse(handler, "GET", "/items", "Origin", "https://app.example")
	printResponse(handler, "OPTIONS", "/items", preflight...)
	printResponse(handler, "OPTIONS", "/items", append(preflight, "Authorization", "Basic YTpi")...)
	// Output:
	// OPTIONS /items 204
	// GET /items 200
	// OPTIONS /items 204
	// OPTIONS /items 429
}

// Behind a proxy, the TCP peer is the proxy. The client is in the header that the proxy adds to.
func ExampleClientIPs() {
	behind := ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	exempt := skip.ClientIPs(behind, netip.MustParsePrefix("192.0.2.0/24"))

	for _, forwarded := range []string{"192.0.2.1", "198.51.100.1", "192.0.2.1, 198.51.100.1"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:80"
		r.Header.Set("X-Forwarded-For", forwarded)
		fmt.Println(forwarded, exempt(r))
	}
	// Output:
	// 192.0.2.1 true
	// 198.51.100.1 false
	// 192.0.2.1, 198.51.100.1 false
}

// Health checks are exempt, whoever sends them. A path in an unusual form is not.
func ExamplePaths() {
	exempt := skip.Paths("GET /healthz", "GET /static/")
	for _, request := range []string{"GET /healthz", "POST /healthz", "GET /static/a.css", "GET //healthz"} {
		var method, path string
		fmt.Sscan(request, &method, &path)
		fmt.Println(request, exempt(httptest.NewRequest(method, path, nil)))
	}
	// Output:
	// GET /healthz true
	// POST /healthz false
	// GET /static/a.css true
	// GET //healthz false
}

// Requests of your own networks are exempt. One that came through a proxy is not.
func ExampleIPs() {
	exempt := skip.IPs(ratelimit.PrivateNetworks...)
	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(exempt(r))
	r.RemoteAddr = "10.0.0.7:1234"
	fmt.Println(exempt(r))
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	fmt.Println(exempt(r))
	// Output:
	// false
	// true
	// false
}

// Health checks from anywhere, and all requests of the monitoring.
func ExampleAny() {
	exempt := skip.Any(
		skip.Paths("GET /healthz"),
		skip.IPs(netip.MustParsePrefix("192.0.2.0/24")),
	)
	r := httptest.NewRequest("GET", "/items", nil)
	fmt.Println(exempt(r))
	r.RemoteAddr = "198.51.100.1:1234"
	fmt.Println(exempt(r))
	// Output:
	// true
	// false
}
