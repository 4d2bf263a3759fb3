package otelratelimit

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/observe"
)

// What is recorded has the buckets and the sum of what was counted, after each call.
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
			before.record(counted, func(n int64, value float64) {
				// The SDK's rule: a bucket includes its upper bound.
				got[sort.Search(len(bounds), func(i int) bool { return value <= bounds[i].Seconds() })] += n
				sum += float64(n) * value
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
