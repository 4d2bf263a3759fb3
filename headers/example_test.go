package headers_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// show prints the rate limit headers of the second request under a limit of 20 a minute with a burst of 5.
func show(format ratelimit.HeaderFunc) {
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return time.Unix(1_800_000_000, 0) }}))
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:   buckets,
		Headers: format,
		Policies: []ratelimit.Policy{
			{Name: "login", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(20).WithBurst(5)},
			{Name: "candidate", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(20).WithBurst(1), Shadow: true},
		},
	}))
	handler := limiter.Handler(hello)
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	printLimits(w.Header())
}

func printLimits(h http.Header) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if strings.Contains(name, "Ratelimit") {
			fmt.Printf("%s: %s\n", name, strings.Join(h[name], " | "))
		}
	}
}

func ExampleIETF() {
	show(headers.IETF)
	// Output:
	// Ratelimit: "login";r=3;t=9
	// Ratelimit-Policy: "login";q=5;w=15
}

// The bucket is full again in 6 seconds.
func ExampleDeltaSeconds() {
	show(headers.DeltaSeconds)
	// Output:
	// X-Ratelimit-Limit: 5
	// X-Ratelimit-Remaining: 3
	// X-Ratelimit-Reset: 6
}

// All numbers are in thirds of a token, so that the rate is a whole number a second.
func ExampleSpring() {
	show(headers.Spring)
	// Output:
	// X-Ratelimit-Burst-Capacity: 15
	// X-Ratelimit-Remaining: 9
	// X-Ratelimit-Replenish-Rate: 1
	// X-Ratelimit-Requested-Tokens: 3
}

// The candidate denies nothing. It would have denied this request.
func ExampleShadows() {
	show(headers.Join(headers.IETF, headers.Shadows))
	// Output:
	// Ratelimit: "login";r=3;t=9
	// Ratelimit-Policy: "login";q=5;w=15
	// X-Ratelimit-Shadow: "candidate";r=0;t=3
}

// Both formats, while clients move from one to the other.
func ExampleJoin() {
	show(headers.Join(headers.IETF, headers.DeltaSeconds))
	// Output:
	// Ratelimit: "login";r=3;t=9
	// Ratelimit-Policy: "login";q=5;w=15
	// X-Ratelimit-Limit: 5
	// X-Ratelimit-Remaining: 3
	// X-Ratelimit-Reset: 6
}

// An API that does not publish its limits.
func ExampleNone() {
	show(headers.None)
	// Output:
}

// A server behind a proxy in a router is limited, too. Clients see one set of headers: those of the bucket with fewer
// tokens.
func ExampleMerge() {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "3")
		w.Header().Set("X-RateLimit-Remaining", "2")
		w.Header().Set("X-RateLimit-Reset", "1")
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	router := http.NewServeMux()
	router.Handle("/", headers.Merge(proxy))

	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(5)}},
		Headers:  headers.DeltaSeconds,
	}))
	defer limiter.Close()
	w := httptest.NewRecorder()
	limiter.Handler(router).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	printLimits(w.Header())
	// Output:
	// X-Ratelimit-Limit: 3
	// X-Ratelimit-Remaining: 2
	// X-Ratelimit-Reset: 1
}
