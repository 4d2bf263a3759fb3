package otelratelimit

import (
	"context"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-tokenbucket/ratelimit/observe"
)

// durations records how long decisions took. A Record of the SDK costs a request more than all its other metrics
// together, and there are no asynchronous histograms. So the durations are those that observe.Counts has counted, and
// are recorded when a reader collects, as many as came since. The zero value is ready to use.
type durations struct {
	mu       sync.Mutex // several readers may collect at once
	recorded map[string]*recorded
}

// recorded are the durations of an outcome that were recorded.
type recorded struct {
	buckets []int64
	sum     float64 // in seconds
	options []metric.RecordOption
}

// patience is how long a reader records durations at most, which is enough for millions. After a pause there may be
// more: the rest is recorded by the next collections.
const patience = time.Second

// atOnce is how many durations are recorded before the clock is read again.
const atOnce = 1024

func (d *durations) record(ctx context.Context, into metric.Float64Histogram, decisions []observe.DecisionCounts, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recorded == nil {
		d.recorded = make(map[string]*recorded)
	}
	enabled := into.Enabled(ctx)
	for _, counted := range decisions {
		before := d.recorded[counted.Outcome]
		if before == nil {
			before = &recorded{
				buckets: make([]int64, len(counted.Took.Buckets)),
				options: []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(outcomeKey.String(counted.Outcome)))},
			}
			d.recorded[counted.Outcome] = before
		}
		before.record(counted.Took, func(n int64, value float64) (done int64) {
			if !enabled {
				return n
			}
			for ; done < n; done++ {
				if done%atOnce == atOnce-1 && (ctx.Err() != nil || !time.Now().Before(until)) {
					break
				}
				into.Record(ctx, value, before.options...)
			}
			return done
		})
	}
}

// record calls yield for each bucket of now with the number of durations that are new, and a value in that bucket. yield
// returns how many it recorded. The values are as far above the lower bounds, in relation to the widths, that their sum is
// that of now.
func (before *recorded) record(now observe.Histogram, yield func(n int64, value float64) int64) {
	lowest, widths := 0.0, 0.0
	for i := range now.Buckets {
		n := float64(now.Buckets[i] - before.buckets[i])
		low, high := bucket(now.Bounds, i)
		lowest += n * low
		widths += n * (high - low)
	}
	if widths == 0 {
		return // none are new
	}
	// Counts are read while they change, so the sum may be of a few durations more or less. The next call corrects it.
	part := (now.Sum.Seconds() - before.sum - lowest) / widths
	for i := range now.Buckets {
		if n := now.Buckets[i] - before.buckets[i]; n > 0 {
			low, high := bucket(now.Bounds, i)
			value := min(max(low+part*(high-low), low), high)
			if i > 0 && value == low { // which is in the bucket before
				value = math.Nextafter(low, high)
			}
			n = yield(n, value)
			before.buckets[i] += n
			before.sum += float64(n) * value
		}
	}
}

// bucket returns the bounds of a bucket, in seconds. The last one has no upper bound: it is taken to end at twice its
// lower one.
func bucket(bounds []time.Duration, i int) (low, high float64) {
	if i > 0 {
		low = bounds[i-1].Seconds()
	}
	if i < len(bounds) {
		return low, bounds[i].Seconds()
	}
	return low, 2 * low
}
