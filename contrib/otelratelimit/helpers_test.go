package otelratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// canary is in the keys, paths and errors of requests, and must be nowhere else.
const canary = "canary-4711"

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

func newLimiter(t testing.TB, cfg ratelimit.Config) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func newObserver(t testing.TB, cfg otelratelimit.Config) *otelratelimit.Observer {
	t.Helper()
	o, err := otelratelimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func provider(t testing.TB, readers ...sdkmetric.Reader) *sdkmetric.MeterProvider {
	var options []sdkmetric.Option
	for _, r := range readers {
		options = append(options, sdkmetric.WithReader(r))
	}
	p := sdkmetric.NewMeterProvider(options...)
	t.Cleanup(func() { p.Shutdown(context.Background()) })
	return p
}

// keyed is a policy whose key is the header X-Key.
func keyed(name string, limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.Header("X-Key"), Limit: limit}
}

// get serves a request by h and returns its status.
func get(h http.Handler, ctx context.Context, method, path, key string) int {
	r := httptest.NewRequestWithContext(ctx, method, path, nil)
	if key != "" {
		r.Header.Set("X-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// broken is a Store that fails while it is told to.
type broken struct {
	store.Store
	now atomic.Bool
}

var errBroken = errors.New("broken by " + canary)

func (b *broken) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if b.now.Load() {
		return false, errBroken
	}
	return b.Store.Take(ctx, charges, states)
}

func (b *broken) Unwrap() store.Store { return b.Store }

func collect(t testing.TB, reader sdkmetric.Reader) metricdata.ResourceMetrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// metricsOf returns the metrics of the Observer, by name.
func metricsOf(t testing.TB, reader sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	all := collect(t, reader)
	metrics := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != otelratelimit.ScopeName {
			t.Errorf("scope %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}

// values returns the points of a metric as text: "a=b c=d" by value, or number and sum for a histogram.
func values(t testing.TB, m metricdata.Metrics) (kind string, points []string) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = "updowncounter"
		if data.IsMonotonic {
			kind = "counter"
		}
		for _, p := range data.DataPoints {
			points = append(points, fmt.Sprintf("%s: %d", attrsOf(p.Attributes), p.Value))
		}
	case metricdata.Gauge[float64]:
		kind = "gauge"
		for _, p := range data.DataPoints {
			points = append(points, fmt.Sprintf("%s: %v", attrsOf(p.Attributes), p.Value))
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			kind = fmt.Sprint("histogram ", p.Bounds)
			points = append(points, fmt.Sprintf("%s: %d in %vs", attrsOf(p.Attributes), p.Count, p.Sum))
		}
	default:
		t.Errorf("%s: %T", m.Name, data)
	}
	slices.Sort(points)
	return kind, points
}

func attrsOf(set attribute.Set) string { return attrsText(set.ToSlice()) }

func attrsText(attrs []attribute.KeyValue) string {
	var text []string
	for _, kv := range attrs {
		text = append(text, fmt.Sprintf("%s=%s", kv.Key, kv.Value.String()))
	}
	return strings.Join(text, " ")
}

// value returns the value of the point of a counter with these attributes; -1 if there is none.
func value(t testing.TB, metrics map[string]metricdata.Metrics, name string, attrs ...attribute.KeyValue) int64 {
	t.Helper()
	data, _ := metrics[name].Data.(metricdata.Sum[int64])
	want := attribute.NewSet(attrs...)
	for _, p := range data.DataPoints {
		if p.Attributes.Equals(&want) {
			return p.Value
		}
	}
	return -1
}
