package promratelimit_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/promratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

func Example() {
	policies := []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(2)}}

	metrics := promratelimit.New(promratelimit.Config{})
	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: policies,
		Observe:  metrics.Observe,
	})
	if err != nil {
		log.Fatal(err)
	}
	metrics.Add("api", limiter)
	registry := prometheus.NewRegistry() // or prometheus.MustRegister(metrics) and promhttp.Handler()
	registry.MustRegister(metrics)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /items/{id}", limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	server := httptest.NewServer(mux)
	defer server.Close()

	for range 3 {
		res, err := http.Get(server.URL + "/items/5")
		if err != nil {
			log.Fatal(err)
		}
		res.Body.Close()
	}
	res, err := http.Get(server.URL + "/metrics")
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	scrape, err := io.ReadAll(res.Body)
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(scrape)) {
		if strings.HasPrefix(line, "ratelimit_requests_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// ratelimit_requests_total{policy="api",result="allowed",route=""} 0
	// ratelimit_requests_total{policy="api",result="allowed",route="GET /items/{id}"} 2
	// ratelimit_requests_total{policy="api",result="denied",route=""} 0
	// ratelimit_requests_total{policy="api",result="denied",route="GET /items/{id}"} 1
}

// With a log of denials, and with counts that a page shows, too.
func Example_join() {
	counts := observe.NewCounts(observe.CountsConfig{History: true})
	metrics := promratelimit.New(promratelimit.Config{Counts: counts})
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Observe: observe.Join(metrics.Observe, observe.LogDenials(observe.LogConfig{})),
	}))
	metrics.Add("api", limiter)
	prometheus.NewRegistry().MustRegister(metrics)
}
