package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A metric is a column of the tables.
type metric struct {
	unit, head string
	text       func(float64) string
}

var metrics = []metric{
	{"p99-ns", "p99", duration},
	{"go-ns/op", "CPU of Go", duration},
	{"redis-ns/op", "CPU of Redis", duration},
	{"allocs/op", "allocations", count},
}

// targets are how many times as fast as the first other side ours is to be, by benchmark and workload. They are those that
// this project has set for itself.
var targets = map[string]float64{
	"Limiter: 10,000 keys, 1 caller":                                  1,
	"Limiter: 10,000 keys, 64 callers":                                3,
	"Limiter: 10,000 keys, 1,024 callers":                             4,
	"Limiter: one key, 1,024 callers":                                 12,
	"Limiter: 8 empty keys, all refused, 256 callers":                 80,
	"Limiter: a Cluster of three masters, 10,000 keys, 1,024 callers": 3,
	"Policies: two policies of one key, 10,000 keys, 1 caller":        1.5,
	"Handler: two policies of one key, 10,000 keys, 1 caller":         1.5,
	"Store: one key of 10,000,000 per second, leased, 256 callers":    100,
	"HTTP: 10,000 keys, 256 connections":                              0.55,
	"Memory: 10,000 keys, all allowed":                                1.33,
	"Memory: 10,000 keys, all denied":                                 1.33,
	"Middleware: RemoteIP":                                            2,
	"Middleware: ClientIP behind one proxy":                           2,
}

// comparisons returns the table of all sides beside ours, which is the first of its workload.
func (r results) comparisons() string {
	var text strings.Builder
	text.WriteString("| | ours : theirs | decisions | ratio (of single rounds) |")
	for _, m := range metrics {
		fmt.Fprintf(&text, " %s |", m.head)
	}
	text.WriteString(" target |\n|---|---|--:|--:|--:|--:|--:|--:|---|\n")
	for workload := range r.workloads() {
		for i, theirs := range workload[1:] {
			text.WriteString(row(workload[0], theirs, i == 0))
		}
	}
	return text.String()
}

// workloads yields the sides of each workload that are compared by speed.
func (r results) workloads() func(yield func([]*measured) bool) {
	return func(yield func([]*measured) bool) {
		for sides := range chunks(r.sides, func(m *measured) string { return m.benchmark + m.workload }) {
			if sides[0].workload != "" && sides[0].metrics["ns/op"] != nil && !yield(sides) {
				return
			}
		}
	}
}

// chunks yields what follows each other with the same key.
func chunks(all []*measured, key func(*measured) string) func(yield func([]*measured) bool) {
	return func(yield func([]*measured) bool) {
		for begin, end := 0, 0; begin < len(all); begin = end {
			for end = begin; end < len(all) && key(all[end]) == key(all[begin]); end++ {
			}
			if !yield(all[begin:end]) {
				return
			}
		}
	}
}

func row(ours, theirs *measured, first bool) string {
	name := ours.benchmark + ": " + ours.workload
	shown := name
	if !first {
		shown = "" // as above
	}
	our, their := ours.speed(), theirs.speed()
	ratio := our.median() / their.median()
	cells := []string{shown, ours.name + " : " + theirs.name, perSecond(our.median()) + " : " + perSecond(their.median()), times(ratio) + spread(our, their)}
	for _, m := range metrics {
		cell := ""
		if ours.metrics[m.unit] != nil && theirs.metrics[m.unit] != nil {
			cell = m.text(ours.metrics[m.unit].median()) + " : " + m.text(theirs.metrics[m.unit].median())
		}
		cells = append(cells, cell)
	}
	target := ""
	if least := targets[name]; first && least > 0 {
		target = times(least) + ": reached"
		if ratio < least && times(ratio) != times(least) {
			target = times(least) + ": **missed**"
		}
	}
	return "| " + strings.Join(append(cells, target), " | ") + " |\n"
}

// spread returns the range of the ratios of single rounds, which shows how much the machine was disturbed.
func spread(ours, theirs figure) string {
	var single []float64
	for i := range min(len(ours), len(theirs)) {
		single = append(single, ours[i]/theirs[i])
	}
	if len(single) < 2 {
		return ""
	}
	return fmt.Sprintf(" (%s–%s)", strings.TrimSuffix(times(slices.Min(single)), "×"), strings.TrimSuffix(times(slices.Max(single)), "×"))
}

func inBytes(v float64) string { return fmt.Sprintf("%.0f bytes", v) }

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

// thousands writes "1024" as "1,024".
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
