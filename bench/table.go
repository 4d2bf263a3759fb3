package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const tableHead = `| what | ours | theirs | ratio (of single rounds) | target |
|---|--:|--:|--:|---|
`

// A row is one line of the table.
type row struct {
	what         string
	ours, theirs figure
	unit         func(float64) string
	bound        bound
}

// A figure is the measurements of one side, one value for each round.
type figure []float64

// A bound is the target of a row. The zero value is none.
type bound struct {
	text  string
	holds func(ours, theirs float64) bool
}

// atMostTimes bounds our value by a multiple of the competitor's.
func atMostTimes(most float64) bound {
	return bound{
		text:  "at most " + times(most),
		holds: func(ours, theirs float64) bool { return ours <= most*theirs },
	}
}

// atLeastTimes is atMostTimes for figures where more is better.
func atLeastTimes(least float64) bound {
	return bound{
		text:  "at least " + times(least),
		holds: func(ours, theirs float64) bool { return ours >= least*theirs },
	}
}

// atMost bounds our value, whatever the competitor's is. The value counts as it is printed.
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
		bound += ": reached"
	default:
		bound += ": **missed**"
	}
	cells := []string{r.what, r.unit(ours), r.unit(theirs), r.ratio(), bound}
	return "| " + strings.Join(cells, " | ") + " |"
}

// ratio returns the ratio of the medians, and the range of the ratios of single rounds. The range shows how much the
// machine was disturbed.
func (r row) ratio() string {
	theirs := r.theirs.median()
	if theirs == 0 || r.unit(theirs) == "0" {
		return ""
	}
	var single []float64
	for i := range r.ours {
		single = append(single, r.ours[i]/r.theirs[i])
	}
	text := times(r.ours.median() / theirs)
	if len(single) > 1 {
		text += fmt.Sprintf(" (%s–%s)", strings.TrimSuffix(times(slices.Min(single)), "×"), strings.TrimSuffix(times(slices.Max(single)), "×"))
	}
	return text
}

func (f figure) median() float64 { return quantile(slices.Sorted(slices.Values(f)), 0.5) }

// quantile returns the smallest of the sorted values that a share q of them do not exceed. There must be at least one
// value.
func quantile(sorted []float64, q float64) float64 {
	return sorted[int(q*float64(len(sorted)-1))]
}

// minus returns f minus base, round by round.
func (f figure) minus(base figure) figure {
	difference := slices.Clone(f)
	for i := range difference {
		difference[i] -= base[i]
	}
	return difference
}

func nanoseconds(v float64) string { return fmt.Sprintf("%.0f ns", v) }
func inBytes(v float64) string     { return fmt.Sprintf("%.0f bytes", v) }

// duration prints nanoseconds in a suitable unit.
func duration(v float64) string {
	switch {
	case v < 999.5:
		return fmt.Sprintf("%.0f ns", v)
	case v < 999.95e3:
		return fmt.Sprintf("%.1f µs", v/1e3)
	default:
		return fmt.Sprintf("%.1f ms", v/1e6)
	}
}

// perSecond prints to three digits.
func perSecond(v float64) string {
	switch {
	case v >= 999_500:
		return fmt.Sprintf("%.2f M/s", v/1e6)
	case v >= 99_950:
		return fmt.Sprintf("%.0f k/s", v/1e3)
	default:
		return fmt.Sprintf("%.1f k/s", v/1e3)
	}
}

// times prints a ratio. Small ratios have more digits.
func times(ratio float64) string {
	switch {
	case ratio < 0.0995:
		return fmt.Sprintf("%.3f×", ratio)
	case ratio < 9.995:
		return fmt.Sprintf("%.2f×", ratio)
	case ratio < 99.95:
		return fmt.Sprintf("%.1f×", ratio)
	default:
		return fmt.Sprintf("%.0f×", ratio)
	}
}

// count prints one decimal. So the allocation of a background goroutine does not look like one of every operation.
func count(v float64) string {
	return strings.TrimPrefix(strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0"), "-")
}
