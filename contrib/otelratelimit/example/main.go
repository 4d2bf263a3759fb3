// Example is an API with a limit that prints its metrics every five seconds, with the SDK of OpenTelemetry. Buckets are
// in memory.
//
//	go run ./example
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	exporter, err := stdoutmetric.New() // in production: an exporter for your backend
	if err != nil {
		log.Fatal(err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(
		sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithInterval(5*time.Second))))
	defer provider.Shutdown(context.Background())
	api, err := newAPI(provider)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("Try: for i in 1 2 3; do curl -i http://%s/items/5; done\n", listener.Addr())
	server := &http.Server{Handler: api, ReadHeaderTimeout: 5 * time.Second}
	log.Print(server.Serve(listener))
}

func newAPI(provider *sdkmetric.MeterProvider) (http.Handler, error) {
	observer, err := otelratelimit.New(otelratelimit.Config{MeterProvider: provider})
	if err != nil {
		return nil, err
	}
	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(2)}},
		Observe:  observer.Observe,
	})
	if err != nil {
		return nil, err
	}
	observer.Register("api", limiter)
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "item", r.PathValue("id"))
	})))
	return mux, nil
}
