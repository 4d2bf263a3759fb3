package otelratelimit

import (
	"context"
	"math"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-tokenbucket/ratelimit/observe"
)

// After each call, the recorded durations have the buckets and the sum of the counted ones.
func TestDurationsThatAreRecorded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	bounds := observe.NewCounts(observe.CountsConfig{}).Snapshot().Decisions[0].Took.Bounds
	for range 200 {
		counted := observe.Histogram{Bounds: bounds, Buckets: make([]int64, len(bounds)+1)}
		before := &recorded{buckets: make([]int64, len(bounds)+1)}
		got := make([]int64, len(bounds)+1)
		sum := 0.0
		for range 5 {
			for range random.IntN(50) {
				took := time.Duration(math.Exp(random.Float64() * math.Log(2e9)))
				switch random.IntN(4) {
				case 0:
					took = bounds[random.IntN(len(bounds))]
				case 1:
					took = bounds[random.IntN(len(bounds))] + 1
				case 2:
					took = 0
				}
				counted.Buckets[sort.Search(len(bounds), func(i int) bool { return took <= bounds[i] })]++
				counted.Count++
				counted.Sum += took
			}
			before.record(counted, func(n int64, value float64) int64 {
				// The SDK's rule: a bucket includes its upper bound.
				got[sort.Search(len(bounds), func(i int) bool { return value <= bounds[i].Seconds() })] += n
				sum += float64(n) * value
				return n
			})
			for i := range got {
				if got[i] != counted.Buckets[i] {
					t.Fatalf("recorded %d, counted %d", got, counted.Buckets)
				}
			}
			if want := counted.Sum.Seconds(); math.Abs(sum-want) > 1e-9*want {
				t.Fatalf("recorded a sum of %v, want %v", sum, want)
			}
		}
	}
}

// A reader does not record for longer than its patience: the rest comes with the next collections.
func TestDurationsAfterALongPause(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	made, err := newInstruments(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	counted := observe.Histogram{Bounds: []time.Duration{1000, 2000}, Buckets: []int64{10_000, 0, 0}, Sum: 5_000_000}
	decisions := []observe.DecisionCounts{{Outcome: "allowed", Took: counted}}
	var d durations
	recorded := func(until time.Time) (uint64, float64) {
		d.record(t.Context(), made.duration, decisions, until)
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		point := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints[0]
		return point.Count, point.Sum
	}
	if n, _ := recorded(time.Now()); n < 1000 || n > 2000 {
		t.Errorf("%d are recorded without time, want about 1,000", n)
	}
	n, sum := recorded(time.Now().Add(time.Hour))
	if n != 10_000 || math.Abs(sum-5e-3) > 1e-9 {
		t.Errorf("%d are recorded in the end, with a sum of %v s; want 10,000 and 5 ms", n, sum)
	}
}

// Durations are not recorded for nobody.
func TestDurationsThatAreNotEnabled(t *testing.T) {
	counted := observe.Histogram{Bounds: []time.Duration{1000}, Buckets: []int64{5, 0}, Sum: 500}
	new(durations).record(t.Context(), notEnabled{t: t}, []observe.DecisionCounts{{Outcome: "allowed", Took: counted}}, time.Now().Add(time.Hour))
}

type notEnabled struct {
	noop.Float64Histogram
	t *testing.T
}

func (notEnabled) Enabled(context.Context) bool { return false }

func (n notEnabled) Record(context.Context, float64, ...metric.RecordOption) {
	n.t.Error("a duration was recorded")
}

// A value is never recorded in the bucket below its own, where the sum is as small as it can be.
func TestDurationsAtTheLowerBound(t *testing.T) {
	now := observe.Histogram{Bounds: []time.Duration{1000, 2000}, Buckets: []int64{0, 1, 1}, Sum: 3000}
	(&recorded{buckets: make([]int64, 3)}).record(now, func(n int64, value float64) int64 {
		if value == 1e-6 || value == 2e-6 {
			t.Errorf("%v is in the bucket before", value)
		}
		return n
	})
}
