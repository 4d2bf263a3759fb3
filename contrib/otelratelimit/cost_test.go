package otelratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/rounds"
)

// bound is what metrics may add to a request, in nanoseconds.
const bound = 600

// BenchmarkCost compares a limited request of net/http with and without the Observer, in rounds that take turns. A busy
// machine makes all rounds longer, so it reports what is added at their first percentile, in ns, and as -median-ns the
// medians of the differences in a round:
//   - observed: an observer that does nothing.
//   - no-sdk, manual, periodic: the Observer, without an SDK and with these readers.
//   - unsampled, sampled: with a remote span, which does not record.
//   - span: with a span that records, in comparison with such a span without the Observer.
//
// It fails if metrics add more than 600, in a benchmark of at least 1,000 rounds.
func BenchmarkCost(b *testing.B) {
	none := context.Background()
	withSpan := func(flags trace.TraceFlags) context.Context {
		return trace.ContextWithSpanContext(none, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags,
		}))
	}
	manual := func() sdkmetric.Reader { return sdkmetric.NewManualReader() }
	periodic := func() sdkmetric.Reader {
		return sdkmetric.NewPeriodicReader(discard{}, sdkmetric.WithInterval(100*time.Millisecond))
	}
	tracer := sdktrace.NewTracerProvider().Tracer("")
	recorded := func(serve func(context.Context)) func(context.Context) {
		return func(ctx context.Context) {
			ctx, span := tracer.Start(ctx, "")
			serve(ctx)
			span.End()
		}
	}
	serves := []struct {
		name  string
		serve func(context.Context)
		ctx   context.Context
	}{
		{"unobserved", servingTo(b, nil), none},
		{"observed", servingTo(b, func(context.Context, *ratelimit.Event) {}), none},
		{"no-sdk", serving(b, observing(b, nil)), none},
		{"manual", serving(b, observing(b, manual)), none},
		{"periodic", serving(b, observing(b, periodic)), none},
		{"unsampled", serving(b, observing(b, manual)), withSpan(0)},
		{"sampled", serving(b, observing(b, manual)), withSpan(trace.FlagsSampled)},
		{"recorded", recorded(servingTo(b, nil)), none},
		{"recorded-observed", recorded(serving(b, observing(b, manual))), none},
	}
	var functions []func()
	for _, s := range serves {
		functions = append(functions, func() { s.serve(s.ctx) })
	}
	took := rounds.Measure(b, 50, rounds.Wall, functions...)
	quiet, median := make(map[string]float64), make(map[string]float64)
	for i, s := range serves {
		quiet[s.name], median[s.name] = rounds.Quantile(took[i], 0.01), rounds.Quantile(rounds.Minus(took[i], took[0]), 0.5)
	}
	var failed strings.Builder
	b.ReportMetric(quiet["unobserved"], "unobserved-ns")
	b.ReportMetric(quiet["observed"]-quiet["unobserved"], "observed-adds-ns")
	b.ReportMetric(quiet["recorded-observed"]-quiet["recorded"], "span-adds-ns")
	for _, name := range []string{"no-sdk", "manual", "periodic", "unsampled", "sampled"} {
		adds := quiet[name] - quiet["unobserved"]
		b.ReportMetric(adds, name+"-adds-ns")
		b.ReportMetric(median[name], name+"-median-ns")
		if adds > bound && len(took[0]) >= 1000 {
			fmt.Fprintf(&failed, " %s %.0f, median %.0f", name, adds, median[name])
		}
	}
	if failed.Len() > 0 {
		b.Errorf("metrics add more than %d ns:%s; quiet rounds took %v", bound, &failed, quiet)
	}
}

// serving is servingTo an Observer, with its Limiter registered.
func serving(b *testing.B, o *otelratelimit.Observer) func(context.Context) {
	l, serve := served(b, o.Observe)
	o.Register("api", l)
	return serve
}

// servingTo returns a function that serves a request without a network.
func servingTo(b *testing.B, observer func(context.Context, *ratelimit.Event)) func(context.Context) {
	_, serve := served(b, observer)
	return serve
}

func served(b *testing.B, observer func(context.Context, *ratelimit.Event)) (*ratelimit.Limiter, func(context.Context)) {
	l := newLimiter(b, ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(1_000_000_000)}},
		Observe:  observer,
	})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	r := httptest.NewRequest(http.MethodGet, "/items/5", nil)
	w := ratetest.NewDiscard()
	return l, func(ctx context.Context) {
		clear(w.Header())
		mux.ServeHTTP(w, r.WithContext(ctx))
	}
}

// observing returns an Observer for a reader; nil: one without an SDK.
func observing(b *testing.B, reader func() sdkmetric.Reader) *otelratelimit.Observer {
	cfg := otelratelimit.Config{MeterProvider: noop.NewMeterProvider()}
	if reader != nil {
		cfg.MeterProvider = provider(b, reader())
	}
	return newObserver(b, cfg)
}

// discard is an exporter for nobody.
type discard struct{ sdkmetric.Exporter }

func (discard) Temporality(kind sdkmetric.InstrumentKind) metricdata.Temporality {
	return sdkmetric.DefaultTemporalitySelector(kind)
}

func (discard) Aggregation(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(kind)
}

func (discard) Export(context.Context, *metricdata.ResourceMetrics) error { return nil }
func (discard) ForceFlush(context.Context) error                          { return nil }
func (discard) Shutdown(context.Context) error                            { return nil }
