// Package numbers writes numbers for people, on the admin page, in reports and on terminals.
package numbers

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count writes a whole number of any type in groups of three digits: "1,234,567".
func Count(n any) string {
	text := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "−", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Of writes a number of things: "1 client", "1,200 clients".
func Of(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Count(n) + " " + thing
}

// Share writes a part of 1 with the digits that matter. Only nothing is 0 %, and only all is 100 %.
func Share(x float64) string {
	digits := 0
	switch p := 100 * x; {
	case x == 0:
		return "0 %"
	case p < 0.01:
		return "<0.01 %"
	case p > 99.9 && x < 1:
		return ">99.9 %"
	case p < 0.995:
		digits = 2
	case p < 9.95, p >= 99.5 && x < 1:
		digits = 1
	}
	return strconv.FormatFloat(100*x, 'f', digits, 64) + " %"
}

// Percent writes a part of 1 that somebody chose: "99.95 %".
func Percent(x float64) string {
	return strconv.FormatFloat(math.Round(x*1e8)/1e6, 'f', -1, 64) + " %"
}

// Size writes a number of bytes.
func Size(n int64) string {
	switch {
	case n < 10_000:
		return Of(n, "byte")
	case n < 10_000_000:
		return Count(n/1000) + " KB"
	default:
		return Count(n/1_000_000) + " MB"
	}
}

// Span writes a duration with two units at most: "3.2 s", "14 min 20 s". It rounds up, so that a client that waits for the
// time shown does not come too early. The file page.js of package admin has the same function.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "−" + Span(-max(d, -math.MaxInt64))
	case d == 0:
		return "0 s"
	case d < 100*time.Microsecond:
		return "<0.1 ms"
	case d <= 99_900*time.Microsecond:
		return tenths(float64(d)/1e6) + " ms"
	case d <= 9900*time.Millisecond:
		return tenths(d.Seconds()) + " s"
	case d <= 119*time.Second:
		return Count(up(d, time.Second)) + " s"
	case d <= 2*time.Hour-time.Second:
		return two(up(d, time.Second), 60, "min", "s")
	case d <= 2*day-time.Minute:
		return two(up(d, time.Minute), 60, "h", "min")
	default:
		return two(up(d, time.Hour), 24, "d", "h")
	}
}

// tenths writes x with one digit at most, rounded up.
func tenths(x float64) string { return strconv.FormatFloat(math.Ceil(10*x)/10, 'f', -1, 64) }

// up returns how many times unit fits into d, rounded up.
func up(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// two writes n small units, of which a large one has so many.
func two(n, many int64, large, small string) string {
	if n%many == 0 {
		return Count(n/many) + " " + large
	}
	return fmt.Sprintf("%s %s %d %s", Count(n/many), large, n%many, small)
}

// Seconds is Span for a number of seconds, up to 292 years.
func Seconds(s float64) string {
	return Span(time.Duration(min(max(s, 0)*float64(time.Second), math.MaxInt64-1<<10)))
}

// Short writes a duration as time.ParseDuration reads it, without zeros at its end: "15m".
func Short(d time.Duration) string {
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = strings.TrimSuffix(text, zeros[1:])
		}
	}
	return text
}
