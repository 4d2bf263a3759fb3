package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogramStepsFollowEachOther(t *testing.T) {
	for i := range histogramSteps - 1 {
		start, next := time.Duration(stepStart(i)), time.Duration(stepStart(i+1))
		if step(start) != i || step(next-1) != i {
			t.Fatalf("step %d is from %d to %d ns, which are counted in %d and %d", i, start, next-1, step(start), step(next-1))
		}
	}
	if got := step(math.MaxInt64); got != histogramSteps-1 {
		t.Errorf("the longest duration is in step %d: must be in the last, %d", got, histogramSteps-1)
	}
}

func TestHistogramQuantilesAreThoseOfTheDurations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var first, second histogram
	var all []float64
	for range 100_000 {
		d := time.Duration(50_000 * math.Exp(random.NormFloat64()))
		all = append(all, float64(d))
		if len(all)%2 == 0 {
			first.add(d)
		} else {
			second.add(d)
		}
	}
	first.merge(&second)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.99, 0.999} {
		got, want := first.quantile(q), quantile(all, q)
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("quantile(%v) = %.0f, of the durations themselves %.0f", q, got, want)
		}
	}
}
