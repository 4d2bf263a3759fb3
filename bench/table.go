package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const tableHead = `| what | ours | theirs | ratio (of single rounds) | bound |
|---|--:|--:|--:|---|
`

// A row is one line of the table.
type row struct {
	what         string
	ours, theirs figure
	unit         func(float64) string
	bound        bound
}

// A figure is what one side measured, one value a round.
type figure []float64

// A bound is what a row must keep to. The zero value is none.
type bound struct {
	text  string
	holds func(ours, theirs float64) bool
}

// atMostTimes bounds us to a multiple of the competitor.
func atMostTimes(most float64) bound {
	return bound{
		text:  fmt.Sprintf("at most %.2f×", most),
		holds: func(ours, theirs float64) bool { return ours <= most*theirs },
	}
}

// atMost bounds us by ourselves, whatever the competitor does. The figure counts as it is printed.
func atMost(most float64, unit func(float64) string) bound {
	return bound{
		text:  "at most " + unit(most),
		holds: func(ours, _ float64) bool { return ours <= most || unit(ours) == unit(most) },
	}
}

func (r row) String() string {
	ours, theirs := r.ours.median(), r.theirs.median()
	bound := r.bound.text
	switch {
	case r.bound.holds == nil:
	case r.bound.holds(ours, theirs):
		bound += ": holds"
	default:
		bound += ": **does not hold**"
	}
	cells := []string{r.what, r.unit(ours), r.unit(theirs), r.ratio(), bound}
	return "| " + strings.Join(cells, " | ") + " |"
}

// ratio returns the ratio of the medians, and how far those of single rounds lie apart, as a measure of how
// much the machine was disturbed.
func (r row) ratio() string {
	theirs := r.theirs.median()
	if theirs == 0 || r.unit(theirs) == "0" {
		return ""
	}
	var single []float64
	for i := range r.ours {
		single = append(single, r.ours[i]/r.theirs[i])
	}
	text := fmt.Sprintf("%.2f×", r.ours.median()/theirs)
	if len(single) > 1 {
		text += fmt.Sprintf(" (%.2f–%.2f)", slices.Min(single), slices.Max(single))
	}
	return text
}

func (f figure) median() float64 { return quantile(slices.Sorted(slices.Values(f)), 0.5) }

// quantile returns the smallest of sorted values, of which there is one, that a share q of the others do
// not exceed.
func quantile(sorted []float64, q float64) float64 {
	return sorted[int(q*float64(len(sorted)-1))]
}

// minus returns f less what base measured in the same round.
func (f figure) minus(base figure) figure {
	difference := slices.Clone(f)
	for i := range difference {
		difference[i] -= base[i]
	}
	return difference
}

func nanoseconds(v float64) string  { return fmt.Sprintf("%.0f ns", v) }
func microseconds(v float64) string { return fmt.Sprintf("%.1f µs", v/float64(time.Microsecond)) }
func bytes(v float64) string        { return fmt.Sprintf("%.0f bytes", v) }

// count prints to one decimal, so that a background goroutine's allocation is not taken for one of every
// operation.
func count(v float64) string {
	return strings.TrimPrefix(strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0"), "-")
}
