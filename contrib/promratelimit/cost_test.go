package promratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/promratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/rounds"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// bound is what metrics may add to a request that is observed, in nanoseconds.
const bound = 150

// BenchmarkCost compares a limited request of net/http with and without a Collector, in rounds that take turns. A busy
// machine makes all rounds longer, so it reports their first percentile:
//   - observed-adds-ns: what an observer adds that does nothing.
//   - metrics-adds-ns: what a Collector adds to that.
//   - history-adds-ns: the same with CountsConfig.History.
//   - ratio: a request with a Collector to one that is not observed.
//
// It fails if a Collector adds more than 150 ns at the first percentile. The medians of the differences in a round are in
// the error.
func BenchmarkCost(b *testing.B) {
	collector := func(cfg observe.CountsConfig) func(context.Context, *ratelimit.Event) {
		metrics := promratelimit.New(promratelimit.Config{Counts: observe.NewCounts(cfg)})
		prometheus.NewRegistry().MustRegister(metrics)
		return metrics.Observe
	}
	took := rounds.Measure(b, 200, rounds.Wall,
		serving(b, nil),
		serving(b, func(context.Context, *ratelimit.Event) {}),
		serving(b, collector(observe.CountsConfig{})),
		serving(b, collector(observe.CountsConfig{History: true})),
	)
	var quiet, median []float64
	for _, of := range took {
		quiet = append(quiet, rounds.Quantile(of, 0.01))
		median = append(median, rounds.Quantile(rounds.Minus(of, took[1]), 0.5))
	}
	b.ReportMetric(quiet[1]-quiet[0], "observed-adds-ns")
	b.ReportMetric(quiet[2]-quiet[1], "metrics-adds-ns")
	b.ReportMetric(quiet[3]-quiet[1], "history-adds-ns")
	b.ReportMetric(quiet[2]/quiet[0], "ratio")
	for j := 2; j < len(took) && len(took[0]) >= 100; j++ {
		if quiet[j]-quiet[1] > bound {
			b.Errorf("more than %d ns: %.0f ns at the first percentile, with medians of the differences %.0f", bound, quiet, median)
		}
	}
}

// serving returns a function that serves a request without a network.
func serving(b *testing.B, observer func(context.Context, *ratelimit.Event)) func() {
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1_000_000_000)}},
		Observe:  observer,
	}))
	b.Cleanup(func() { l.Close() })
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	r := httptest.NewRequest(http.MethodGet, "/items/5", nil)
	w := ratetest.NewDiscard()
	return func() {
		clear(w.Header())
		mux.ServeHTTP(w, r)
	}
}

// BenchmarkScrape measures a Gather of a Collector with 5 policies on 100 routes each.
func BenchmarkScrape(b *testing.B) {
	metrics := promratelimit.New(promratelimit.Config{})
	for policy := range 5 {
		for route := range 100 {
			r := ratelimit.Result{Policy: string(rune('a' + policy))}
			metrics.Observe(context.Background(), &ratelimit.Event{Op: "request", Route: string(rune('a' + route)), Results: []ratelimit.Result{r}})
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
