package accesslog

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// maxTime is the end of the year 9999, in microseconds. Buckets calculate with the sum of a time and 142 years, and more
// digits are a mistake in a log.
const maxTime = 253402300800_000_000

// timeOf reads a time of a log into e.
func (r *Reader) timeOf(text string, e *Entry) bool {
	if text != r.timeText || text == "" { // the next line often has the same
		at, ok := parseTime(text)
		if !ok || at < 0 || at >= maxTime {
			return false
		}
		r.timeText, r.time = text, at
	}
	e.Time = r.time
	return true
}

// layouts are those of the common log format, and of RFC 3339 with offsets as loggers write them. All take a fraction.
var layouts = []string{"02/Jan/2006:15:04:05 -0700", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07"}

// parseTime reads a time, in microseconds since 1970.
func parseTime(text string) (int64, bool) {
	if !strings.ContainsAny(text, ":") {
		return unixTime(text)
	}
	if len(text) > 19 && text[4] == '-' { // such as 2026-10-10 13:55:36 +0200
		text = strings.ToUpper(text[:10] + "T" + text[11:19] + strings.ReplaceAll(text[19:], " ", ""))
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UnixMicro(), true
		}
	}
	return 0, false
}

// unixTime reads a number of seconds, milliseconds, microseconds or nanoseconds since 1970. From 1973 to 5138 its size
// says which.
func unixTime(text string) (int64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "0123456789.eE+-") != "" || n < 0 || n >= 1e20 {
		return 0, false
	}
	for _, unit := range []struct{ below, micros float64 }{{1e11, 1e6}, {1e14, 1e3}, {1e17, 1}, {1e20, 1e-3}} {
		if n < unit.below {
			return int64(math.Round(n * unit.micros)), true
		}
	}
	return 0, false
}
