package main

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A histogram counts durations in steps. A step is at most a 32nd of its durations wide. So a histogram needs the
// same small memory for ten calls and for a million.
type histogram [histogramSteps]uint32

const (
	stepBits       = 5                               // 2^5 steps for each doubling
	histogramSteps = (36 - stepBits + 1) << stepBits // up to 2^36 ns, which is more than a minute
)

func (h *histogram) add(d time.Duration) { h[step(d)]++ }

// step returns the number of the step of d. Below 2^6 ns each nanosecond is a step.
func step(d time.Duration) int {
	n := uint64(max(d, 0))
	doublings := max(bits.Len64(n)-stepBits-1, 0)
	return min(doublings<<stepBits+int(n>>doublings), histogramSteps-1)
}

// stepStart is the shortest duration of a step.
func stepStart(step int) float64 {
	doublings := max(step>>stepBits-1, 0)
	return float64(uint64(step-doublings<<stepBits) << doublings)
}

// merge adds what other has counted.
func (h *histogram) merge(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// quantile returns the nanoseconds that a share q of the durations do not exceed. It treats the durations of a step
// as spread evenly.
func (h *histogram) quantile(q float64) float64 {
	var total uint64
	for _, n := range h {
		total += uint64(n)
	}
	rank := q * float64(total)
	for i, n := range h {
		if n := float64(n); n > 0 && rank <= n {
			start := stepStart(i)
			return start + rank/n*(stepStart(i+1)-start)
		} else {
			rank -= n
		}
	}
	return 0
}

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
		got, want := first.quantile(q), all[int(q*float64(len(all)-1))]
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("quantile(%v) = %.0f, of the durations themselves %.0f", q, got, want)
		}
	}
}
