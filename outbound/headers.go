package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers is the default of Config.Learn. It reads what these fields of a response say:
//
//   - Retry-After, in seconds or as a date, of a 429, 403 or 503.
//   - RateLimit: of several quotas, the one with the least left. It also reads the forms of earlier drafts.
//   - X-RateLimit-Remaining and X-RateLimit-Reset, also written X-Rate-Limit-…, RateLimit-…: Reset is in seconds from now, in
//     seconds or milliseconds of Unix time, or a date.
//
// A time that is not relative counts from the Date of the response if the clocks differ by more than 2 s. A field that is
// malformed, negative or present twice is ignored. A 403 counts as a refusal only with Retry-After, or if nothing is
// left.
func Headers(resp *http.Response) (Report, bool) {
	return readHeaders(resp.StatusCode, resp.Header, time.Now())
}

func readHeaders(status int, h http.Header, now time.Time) (r Report, ok bool) {
	if date, err := http.ParseTime(h.Get("Date")); err == nil && date.Sub(now).Abs() > 2*time.Second {
		now = date
	}
	r.Remaining, r.Reset, r.Known = readRateLimit(h.Values("RateLimit"))
	for _, prefix := range []string{"X-RateLimit-", "X-Rate-Limit-", "RateLimit-"} {
		if !r.Known {
			r.Remaining, r.Known = readNumber(one(h, prefix+"Remaining"))
			if r.Known {
				r.Reset, _ = readTime(one(h, prefix+"Reset"), now)
			}
		}
	}
	after, hasAfter := readTime(one(h, "Retry-After"), now)
	switch status {
	case http.StatusTooManyRequests:
		r.Refused = true
	case http.StatusForbidden:
		r.Refused = hasAfter || r.Known && r.Remaining == 0
	case http.StatusServiceUnavailable:
		r.Refused = hasAfter
	}
	if r.Refused {
		r.RetryAfter = max(0, after)
	}
	return r, r.Known || r.Refused
}

// one returns the value of a field that occurs once.
func one(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return strings.TrimSpace(values[0])
	}
	return ""
}

// readNumber reads digits, with or without a fraction, which is cut off.
func readNumber(text string) (int64, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	if len(whole) > 15 || strings.Trim(fraction, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(whole, 10, 63)
	return int64(n), err == nil
}

// readTime reads a time after now: digits or a date.
func readTime(text string, now time.Time) (time.Duration, bool) {
	n, ok := readNumber(text)
	switch {
	case ok && n >= 1e12:
		return time.UnixMilli(n).Sub(now), true
	case ok && n >= 1e9:
		return time.Unix(n, 0).Sub(now), true
	case ok:
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return at.Sub(now), true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.Sub(now), true
	}
	return 0, false
}

// readRateLimit reads a list of quotas, such as "hour";r=80;t=600, "day";r=900;t=40000. Drafts before wrote one quota as
// limit=100, remaining=80, reset=600.
func readRateLimit(values []string) (remaining int64, reset time.Duration, ok bool) {
	var left, seconds int64
	var hasLeft bool
	for member := range strings.SplitSeq(outsideQuotes(strings.Join(values, ",")), ",") {
		parts := strings.Split(member, ";")
		if !strings.Contains(parts[0], "=") { // a name: another quota
			left, seconds, hasLeft = 0, 0, false
		}
		for _, part := range parts {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			n, isNumber := readNumber(value)
			switch {
			case !isNumber:
			case name == "r" || name == "remaining":
				left, hasLeft = n, true
			case name == "t" || name == "reset":
				seconds = n
			}
		}
		if hasLeft && (!ok || left <= remaining) {
			remaining, reset, ok = left, time.Duration(min(seconds, 1e9))*time.Second, true
		}
	}
	return remaining, reset, ok
}

// outsideQuotes returns text without what stands in quotes.
func outsideQuotes(text string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted:
			b.WriteByte(c)
		}
	}
	return b.String()
}
