package otelratelimit_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
)

var (
	policyIs = func(name string) attribute.KeyValue { return attribute.String("ratelimit.policy", name) }
	resultIs = func(name string) attribute.KeyValue { return attribute.String("ratelimit.result", name) }
)

func take(t *testing.T, l *ratelimit.Limiter, policy string, n int) {
	t.Helper()
	for range n {
		if _, err := l.Take(t.Context(), ratelimit.Policy{Name: policy, Limit: ratelimit.PerHour(1)}, canary, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// durationsOf returns how many durations a reader has of decisions with an outcome.
func durationsOf(metrics map[string]metricdata.Metrics, outcome string) uint64 {
	data, _ := metrics["ratelimit.decision.duration"].Data.(metricdata.Histogram[float64])
	for _, p := range data.DataPoints {
		if got, _ := p.Attributes.Value("ratelimit.outcome"); got.AsString() == outcome {
			return p.Count
		}
	}
	return 0
}

// Each reader gets everything, as often as it likes, and one that wants differences gets those since its last time.
func TestTwoReaders(t *testing.T) {
	delta := sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(func(sdkmetric.InstrumentKind) metricdata.Temporality {
		return metricdata.DeltaTemporality
	}))
	cumulative := sdkmetric.NewManualReader()
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t, cumulative, delta)})
	l := newLimiter(t, ratelimit.Config{Observe: o.Observe})
	o.Register("main", l)
	check := func(reader sdkmetric.Reader, denied int64) {
		t.Helper()
		metrics := metricsOf(t, reader)
		if got := value(t, metrics, "ratelimit.requests", policyIs("mail"), resultIs("denied")); got != denied {
			t.Errorf("%d were denied, want %d", got, denied)
		}
		if got := durationsOf(metrics, "denied"); got != uint64(denied) {
			t.Errorf("%d durations of denied, want %d", got, denied)
		}
	}
	take(t, l, "mail", 3)
	check(cumulative, 2)
	check(cumulative, 2)
	take(t, l, "mail", 4)
	check(delta, 6)
	check(delta, 0)
	take(t, l, "mail", 1)
	check(cumulative, 7)
	check(delta, 1)
}

// Each Limiter has its own Stats, and the requests of an Observer count once.
func TestRegister(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t, reader)})
	first := newLimiter(t, ratelimit.Config{Observe: o.Observe, MaxWaiting: 10})
	second := newLimiter(t, ratelimit.Config{Observe: o.Observe, MaxWaiting: 100})
	o.Register("first", first)
	o.Register("second", second)
	take(t, first, "mail", 1)
	take(t, second, "mail", 1)
	metrics := metricsOf(t, reader)
	_, got := values(t, metrics["ratelimit.queued_requests.limit"])
	if want := []string{"ratelimit.limiter=first: 10", "ratelimit.limiter=second: 100"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := value(t, metrics, "ratelimit.requests", policyIs("mail"), resultIs("allowed")); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestRegisterPanics(t *testing.T) {
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t)})
	l := newLimiter(t, ratelimit.Config{})
	o.Register("api", l)
	ratetest.CheckPanic(t, func() { o.Register("other", nil) }, "otelratelimit: Register: l must not be nil")
	ratetest.CheckPanic(t, func() { o.Register("api", newLimiter(t, ratelimit.Config{})) }, `otelratelimit: Register: name "api": is taken`)
	o.Register("again", l) // under another name, which the program may want
}

// The series of policies exist before their first request, also of those that are mounted later.
func TestPoliciesAreThereFromTheStart(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t, reader)})
	l := newLimiter(t, ratelimit.Config{Observe: o.Observe, Policies: []ratelimit.Policy{keyed("list", ratelimit.PerHour(1))}})
	o.Register("main", l)
	denied := func(policy string) int64 {
		return value(t, metricsOf(t, reader), "ratelimit.requests", policyIs(policy), resultIs("denied"))
	}
	if list, later := denied("list"), denied("later"); list != 0 || later != -1 {
		t.Errorf("list %d, later %d", list, later)
	}
	h := l.Limit(keyed("later", ratelimit.PerHour(1)))(ok)
	if n := denied("later"); n != 0 {
		t.Errorf("later %d", n)
	}
	get(h, t.Context(), "GET", "/", canary)

	paid := keyed("paid", ratelimit.PerHour(1))
	paid.Settle = ratelimit.FailedLogins
	l.Limit(paid)
	metrics := metricsOf(t, reader)
	for _, name := range []string{"ratelimit.settlements", "ratelimit.settlement.estimated_tokens", "ratelimit.settlement.final_tokens"} {
		if n := value(t, metrics, name, policyIs("paid")); n != 0 {
			t.Errorf("%s: %d before the first request", name, n)
		}
	}
	if n := value(t, metrics, "ratelimit.memory.evictions", attribute.String("ratelimit.limiter", "main"), attribute.String("ratelimit.store", "primary"), policyIs("list")); n != 0 {
		t.Errorf("%d evictions before the first", n)
	}
	if n := value(t, metrics, "ratelimit.settlements", policyIs("list")); n != -1 {
		t.Errorf("%d settlements of a policy that settles nothing", n)
	}
}

// A policy may be enforced in one limiter, a Shadow in another and settled in a third, and a policy of Take in none.
func TestTheSeriesOfPoliciesThatAreSeveral(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t, reader)})
	trial, paid := keyed("api", ratelimit.PerHour(1)), keyed("api", ratelimit.PerHour(1))
	trial.Shadow, paid.Settle = true, ratelimit.FailedLogins
	for i, policies := range [][]ratelimit.Policy{{keyed("api", ratelimit.PerHour(1))}, {trial}, {paid}, {trial}, {keyed("api", ratelimit.PerHour(1))}} {
		o.Register(strconv.Itoa(i), newLimiter(t, ratelimit.Config{Observe: o.Observe, Policies: policies}))
	}
	take(t, newLimiter(t, ratelimit.Config{Observe: o.Observe}), "mail", 1)
	o.Observe(t.Context(), &ratelimit.Event{Op: "settle", Allowed: true, Results: []ratelimit.Result{{Policy: "jobs", Cost: 3}}, Estimates: []int64{7}})
	for _, want := range []struct {
		metric string
		value  int64
		attrs  []attribute.KeyValue
	}{
		{"ratelimit.requests", 0, []attribute.KeyValue{policyIs("api"), resultIs("denied")}},
		{"ratelimit.requests", 0, []attribute.KeyValue{policyIs("api"), resultIs("would_deny")}},
		{"ratelimit.requests", -1, []attribute.KeyValue{policyIs("api"), resultIs("not_charged")}},
		{"ratelimit.settlements", 0, []attribute.KeyValue{policyIs("api")}},
		{"ratelimit.requests", 0, []attribute.KeyValue{policyIs("mail"), resultIs("denied")}},
		{"ratelimit.requests", -1, []attribute.KeyValue{policyIs("mail"), resultIs("would_deny")}},
		{"ratelimit.settlements", -1, []attribute.KeyValue{policyIs("mail")}},
		{"ratelimit.settlements", 1, []attribute.KeyValue{policyIs("jobs")}},
		{"ratelimit.settlement.estimated_tokens", 7, []attribute.KeyValue{policyIs("jobs")}},
		{"ratelimit.settlement.final_tokens", 3, []attribute.KeyValue{policyIs("jobs")}},
	} {
		for range 20 { // a reader goes through the Limiters in any order
			if got := value(t, metricsOf(t, reader), want.metric, want.attrs...); got != want.value {
				t.Fatalf("%s %s: %d, want %d", want.metric, attrsText(want.attrs), got, want.value)
			}
		}
	}
}

// A duration is recorded as it was, in the bucket and under the outcome of its decision, with the span as exemplar.
func TestDurations(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t, reader)})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	o.Observe(ctx, &ratelimit.Event{Op: "request", Allowed: true, Took: 4500 * time.Microsecond})
	o.Observe(ctx, &ratelimit.Event{Op: "take", Allowed: true, Took: 2500 * time.Microsecond, Waited: 3 * time.Second})
	o.Observe(ctx, &ratelimit.Event{Op: "wait", Took: 2 * time.Second, Waited: 5 * time.Millisecond, Err: context.Canceled})
	for _, op := range []string{"peek", "refund", "reset", "block", "unblock", "settle"} {
		o.Observe(ctx, &ratelimit.Event{Op: op, Allowed: true, Took: time.Hour, Waited: time.Hour})
	}
	type point struct {
		outcome       string
		buckets       map[float64]uint64 // by upper bound, without empty ones
		sum, min, max float64
		exemplars     []float64
	}
	points := func(name string) (all []point) {
		for _, p := range metricsOf(t, reader)[name].Data.(metricdata.Histogram[float64]).DataPoints {
			got := point{outcome: attrsOf(p.Attributes), buckets: make(map[float64]uint64), sum: math.Round(p.Sum*1e9) / 1e9}
			got.min, _ = p.Min.Value()
			got.max, _ = p.Max.Value()
			for i, n := range p.BucketCounts {
				if n > 0 {
					got.buckets[append(p.Bounds, math.Inf(1))[i]] = n
				}
			}
			for _, e := range p.Exemplars {
				if !slices.Equal(e.SpanID, []byte{2, 0, 0, 0, 0, 0, 0, 0}) {
					t.Errorf("an exemplar of span %x", e.SpanID)
				}
				got.exemplars = append(got.exemplars, e.Value)
			}
			slices.Sort(got.exemplars)
			all = append(all, got)
		}
		slices.SortFunc(all, func(a, b point) int { return strings.Compare(a.outcome, b.outcome) })
		return all
	}
	for name, want := range map[string][]point{
		"ratelimit.decision.duration": {
			{"ratelimit.outcome=allowed", map[float64]uint64{0.0025: 1, 0.005: 1}, 0.007, 0.0025, 0.0045, []float64{0.0025, 0.0045}},
			{"ratelimit.outcome=canceled", map[float64]uint64{math.Inf(1): 1}, 2, 2, 2, []float64{2}},
		},
		"ratelimit.request.time_in_queue": {
			{"ratelimit.outcome=allowed", map[float64]uint64{5: 1}, 3, 3, 3, []float64{3}},
			{"ratelimit.outcome=canceled", map[float64]uint64{0.005: 1}, 0.005, 0.005, 0.005, []float64{0.005}},
		},
	} {
		if got := points(name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}

// Methods that are not those of HTTP may come from clients.
func TestRoutes(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t, reader)})
	l := newLimiter(t, ratelimit.Config{Observe: o.Observe})
	o.Register("main", l)
	for _, route := range []string{"GET /items/{id}", "POST /items/{id}", "/all", "PURGE /items/{id}", "BREW /items/{id}", "GET example.com/", "/api/* GET /sub/{id}", "/rpc.Service/Call", "{path...}"} {
		o.Observe(t.Context(), &ratelimit.Event{Op: "request", Allowed: true, Route: route, Results: []ratelimit.Result{{Policy: "api"}}})
	}
	for _, method := range []string{"HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"} {
		o.Observe(t.Context(), &ratelimit.Event{Op: "request", Allowed: true, Route: method + " /", Results: []ratelimit.Result{{Policy: "api"}}})
		if n := value(t, metricsOf(t, reader), "ratelimit.degraded_requests", attribute.String("http.request.method", method), attribute.String("http.route", "/"), policyIs("api")); n != 0 {
			t.Errorf("%s: %d", method, n)
		}
	}
	_, got := values(t, metricsOf(t, reader)["ratelimit.degraded_requests"])
	got = slices.DeleteFunc(got, func(point string) bool { return strings.Contains(point, "http.route=/ ") })
	want := []string{
		"http.request.method=GET http.route=/items/{id} ratelimit.policy=api: 0",
		"http.request.method=GET http.route=example.com/ ratelimit.policy=api: 0",
		"http.request.method=POST http.route=/items/{id} ratelimit.policy=api: 0",
		"http.route=/all ratelimit.policy=api: 0",
		"http.route=/api/* GET /sub/{id} ratelimit.policy=api: 0",
		"http.route=/rpc.Service/Call ratelimit.policy=api: 0",
		"http.route=BREW /items/{id} ratelimit.policy=api: 0",
		"http.route=PURGE /items/{id} ratelimit.policy=api: 0",
		"http.route={path...} ratelimit.policy=api: 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Requests, readers and registrations may run at once, and nothing is counted twice or lost.
func TestAllAtOnce(t *testing.T) {
	readers := []sdkmetric.Reader{sdkmetric.NewManualReader(), sdkmetric.NewManualReader()}
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t, readers...)})
	l := newLimiter(t, ratelimit.Config{Observe: o.Observe})
	o.Register("main", l)
	h := l.Limit(keyed("api", ratelimit.PerHour(1)))(ok)
	const clients, each = 4, 200
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for range each {
				get(h, context.Background(), "GET", "/", canary)
			}
		})
		running.Go(func() {
			for i := range 20 {
				o.Register(fmt.Sprint(client, i), newLimiter(t, ratelimit.Config{Observe: o.Observe}))
				metricsOf(t, readers[client%2])
			}
		})
	}
	running.Wait()
	for _, r := range readers {
		metrics := metricsOf(t, r)
		denied, durations := value(t, metrics, "ratelimit.requests", policyIs("api"), resultIs("denied")), durationsOf(metrics, "denied")
		if denied != clients*each-1 || durations != clients*each-1 {
			t.Errorf("%d were denied in %d durations, want %d", denied, durations, clients*each-1)
		}
	}
}

// Without an SDK nothing is recorded, and the Counts go on.
func TestCountsWithoutAnSDK(t *testing.T) {
	counts := observe.NewCounts(observe.CountsConfig{})
	o := newObserver(t, otelratelimit.Config{MeterProvider: noop.NewMeterProvider(), Counts: counts})
	l := newLimiter(t, ratelimit.Config{Observe: o.Observe})
	o.Register("main", l)
	take(t, l, "mail", 2)
	if got := counts.Snapshot().Policies[0].Total(); got.Allowed != 1 || got.Denied != 1 {
		t.Errorf("Counts of the program have %+v", got)
	}
}

var globalReader sdkmetric.Reader

// The provider of the program may be set after the Observer was made, as otel allows.
func TestTheGlobalProvider(t *testing.T) {
	o := newObserver(t, otelratelimit.Config{})
	l := newLimiter(t, ratelimit.Config{Observe: o.Observe})
	o.Register("main", l)
	if globalReader != nil {
		return // it is set only once in a process, before -count=2
	}
	reader := sdkmetric.NewManualReader()
	globalReader = reader
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	take(t, l, "mail", 2)
	metrics := metricsOf(t, reader)
	if got, durations := value(t, metrics, "ratelimit.requests", policyIs("mail"), resultIs("denied")), durationsOf(metrics, "denied"); got != 1 || durations != 1 {
		t.Errorf("%d were denied in %d durations, want 1", got, durations)
	}
}

func TestNewRefusesAShortSecret(t *testing.T) {
	_, err := otelratelimit.New(otelratelimit.Config{KeySecret: secret[:15]})
	if want := "otelratelimit: New: Config.KeySecret has 15 bytes: must have at least 16 random bytes, or be nil for spans without keys"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err := otelratelimit.New(otelratelimit.Config{KeySecret: secret[:16]}); err != nil {
		t.Error(err)
	}
}
