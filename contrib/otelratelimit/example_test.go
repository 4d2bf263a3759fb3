package otelratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"
)

// Count the requests of a policy, by result.
func Example() {
	// The SDK of the program. Usually the reader has an exporter, and otel.SetMeterProvider sets the provider.
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))

	observer, err := otelratelimit.New(otelratelimit.Config{MeterProvider: provider})
	if err != nil {
		panic(err)
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(2)}},
		Observe:  observer.Observe,
	}))
	defer limiter.Close()
	observer.Register("api", limiter)

	handler := limiter.Handler(http.NotFoundHandler())
	for range 5 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		panic(err)
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if m.Name == "ratelimit.requests" {
			for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
				result, _ := point.Attributes.Value(attribute.Key("ratelimit.result"))
				fmt.Println(result.AsString(), point.Value)
			}
		}
	}
	// Unordered output:
	// allowed 2
	// denied 3
}

// Spans of requests have what was decided. With a KeySecret they also have the key, as the log has it.
func ExampleConfig_keySecret() {
	observer, err := otelratelimit.New(otelratelimit.Config{KeySecret: []byte("a secret of 16 bytes or more")})
	if err != nil {
		panic(err)
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1)}},
		Observe:  observer.Observe,
	}))
	defer limiter.Close()
	handler := limiter.Handler(http.NotFoundHandler())

	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("")
	for range 2 {
		ctx, span := tracer.Start(context.Background(), "GET /") // otelhttp.NewHandler does this
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		span.End()
	}
	for _, span := range spans.Ended() {
		for _, attr := range span.Attributes() {
			fmt.Println(attr.Key, attr.Value.String())
		}
		for _, event := range span.Events() {
			fmt.Println("event", event.Name)
		}
	}
	// Output:
	// ratelimit.operation request
	// ratelimit.outcome allowed
	// ratelimit.allowed true
	// ratelimit.policy api
	// ratelimit.remaining 0
	// ratelimit.key hmac:66ffd7661dac2dd9
	// ratelimit.operation request
	// ratelimit.outcome denied
	// ratelimit.allowed false
	// ratelimit.policy api
	// ratelimit.remaining 0
	// ratelimit.key hmac:66ffd7661dac2dd9
	// event ratelimit.denied
}
