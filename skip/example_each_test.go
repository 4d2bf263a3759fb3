package skip_test

import (
	"fmt"
	"net/http/httptest"
	"net/netip"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/skip"
)

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
