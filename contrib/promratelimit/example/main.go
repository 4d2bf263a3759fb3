// Example is an API with a limit whose metrics Prometheus can scrape. Buckets are in memory.
//
//	go run ./example
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/promratelimit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("Try: for i in 1 2 3; do curl -i http://%[1]s/items/5; done; curl -s http://%[1]s/metrics | grep ratelimit_requests\n", listener.Addr())
	server := &http.Server{Handler: newAPI(), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

func newAPI() http.Handler {
	metrics := promratelimit.New(promratelimit.Config{})
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(2)}},
		Observe:  metrics.Observe,
	}))
	metrics.Add("api", limiter)
	prometheus.MustRegister(metrics)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("GET /items/{id}", limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "item", r.PathValue("id"))
	})))
	return mux
}
