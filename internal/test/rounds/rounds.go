// Package rounds measures functions beside each other.
package rounds

import (
	"slices"
	"testing"
	"time"
)

// Wall is the clock of most benchmarks.
func Wall() time.Duration { return time.Since(start) }

var start = time.Now()

// Measure runs functions in rounds: each of them so many times in turn, beginning with another one in each round. So a
// busy machine slows all of them alike. It returns for each the nanoseconds of a call by the clock, in each round.
func Measure(b *testing.B, each int, clock func() time.Duration, functions ...func()) [][]float64 {
	took := make([][]float64, len(functions))
	for i := 0; b.Loop(); i++ {
		for j := range functions {
			which := (i + j) % len(functions)
			f := functions[which]
			begin := clock()
			for range each {
				f()
			}
			took[which] = append(took[which], float64(clock()-begin)/float64(each))
		}
	}
	b.ReportMetric(0, "ns/op")
	return took
}

// Minus returns the differences in each round.
func Minus(one, other []float64) []float64 {
	differences := make([]float64, len(one))
	for i := range one {
		differences[i] = one[i] - other[i]
	}
	return differences
}

// Quantile returns what a part q of the values does not exceed.
func Quantile(of []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[int(q*float64(len(sorted)-1))]
}
