// Package endtime reads when something ends, as operators write it.
package endtime

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// Rule is what a text must be, for texts of errors.
const Rule = "a time such as 2027-03-31T18:00:00Z, a date such as 2027-03-31, which is 0:00 UTC, or a duration such as 72h or 7d"

// Parse returns the time that text stands for: an RFC 3339 time, the first instant of a date in UTC, or a duration from now.
// The empty text is the zero Time: there is no end.
func Parse(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if end, err := time.Parse(layout, text); err == nil {
			return end, nil
		}
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return time.Time{}, errors.New("must be " + Rule)
	}
	return now.Add(d), nil
}
