package admin

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// These write numbers for people. page.js has span and level, too, for what changes between two answers.

// span writes a duration with two units at most: "3.2 s", "14 min 20 s".
func span(v any) string {
	var d time.Duration
	switch v := v.(type) {
	case seconds:
		d = time.Duration(v)
	case time.Duration:
		d = v
	}
	s := int64(d / time.Second)
	switch {
	case d > 0 && d < 100*time.Microsecond:
		return "<0.1 ms"
	case d < 100*time.Millisecond:
		return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(math.Ceil(d.Seconds()*10)/10, 'f', 1, 64) + " s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", s)
	case d < 2*time.Hour:
		return two(s/60, "min", s%60, "s")
	case d < 48*time.Hour:
		return two(s/3600, "h", s%3600/60, "min")
	default:
		return two(s/86400, "d", s%86400/3600, "h")
	}
}

func two(most int64, unit string, rest int64, of string) string {
	if rest == 0 {
		return fmt.Sprintf("%d %s", most, unit)
	}
	return fmt.Sprintf("%d %s %d %s", most, unit, rest, of)
}

// count writes a whole number in groups of three digits.
func count(v any) string {
	text := fmt.Sprint(v)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "−", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// between writes a count that may be too high by as much as wrong.
func between(n, wrong int64) string {
	if wrong <= 0 {
		return count(n)
	}
	return count(n-wrong) + "–" + count(n)
}

// rate writes a number per second, with the digits that matter.
func rate(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.1:
		return "<0.1"
	case x < 10:
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	default:
		return count(int64(math.Round(x)))
	}
}

// percent writes a part of 1.
func percent(x float64) string {
	switch p := 100 * x; {
	case p > 0 && p < 0.1:
		return "<0.1 %"
	case p < 10:
		return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

// sizeOf writes a number of bytes.
func sizeOf(n int64) string {
	switch {
	case n < 10_000:
		return count(n) + " bytes"
	case n < 10_000_000:
		return count(n/1000) + " KB"
	default:
		return count(n/1_000_000) + " MB"
	}
}

// tenths writes tokens with one digit, rounded down: a bucket that is not full never seems so.
func tenths(x float64) string {
	text := strconv.FormatFloat(math.Floor(x*10)/10, 'f', 1, 64)
	return strings.Replace(strings.TrimSuffix(text, ".0"), "-", "−", 1)
}

func stamp(v any) string { return asTime(v).UTC().Format(time.RFC3339) }
func clock(v any) string { return asTime(v).UTC().Format("15:04:05") }
func day(v any) string   { return asTime(v).UTC().Format("2 Jan 15:04:05") }

func asTime(v any) time.Time {
	switch v := v.(type) {
	case time.Time:
		return v
	case *time.Time:
		if v != nil {
			return *v
		}
	}
	return time.Time{}
}

func lasted(since time.Time, until *time.Time) string { return span(until.Sub(since)) }

// words writes a name of a count for people.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// Text is what the bucket holds, in words. page.js writes the same.
func (b bucketFacts) Text() string {
	switch {
	case b.State == "blocked":
		return "Blocked"
	case b.Burst == 0:
		return "Full"
	}
	return tenths(b.Tokens) + " of " + count(b.Burst) + " tokens"
}

// Next is when it goes on, in words. page.js writes the same.
func (b bucketFacts) Next() string {
	switch {
	case b.State == "blocked":
		return "No request is allowed for " + span(b.NextIn) + "."
	case b.State == "full":
		return "Never used, or refilled."
	case b.NextIn == 0:
		return "The next request is allowed now. Full in " + span(b.FullIn) + "."
	}
	return "The next request is allowed in " + span(b.NextIn) + ". Full in " + span(b.FullIn) + "."
}

// Block says since when the bucket is blocked, by whom and why. It is "" if that is not known.
func (b bucketFacts) Block() string {
	switch {
	case !b.Blocked || b.Since == 0:
		return ""
	case b.Locked:
		return "Locked by a request " + span(b.Since) + " ago."
	case b.Reason == "":
		return "Blocked " + span(b.Since) + " ago."
	}
	return "Blocked " + span(b.Since) + " ago by " + b.Reason
}

// Percent is how full the bar is.
func (b bucketFacts) Percent() string {
	if b.State == "full" {
		return "100"
	}
	if b.Burst == 0 {
		return "0"
	}
	return strconv.FormatFloat(100*b.Level()/float64(b.Burst), 'f', 2, 64)
}

// Level is the number of tokens within the bar.
func (b bucketFacts) Level() float64 {
	if b.State == "blocked" {
		return 0
	}
	return min(max(0, math.Floor(b.Tokens*1000)/1000), float64(b.Burst))
}

// Top is the number of tokens of a full bar.
func (b bucketFacts) Top() int64 { return max(1, b.Burst) }

// Refundable reports whether a refund would change the bucket, and its limit is known.
func (b bucketFacts) Refundable() bool {
	return b.State != "full" && b.State != "unknown" && b.Burst > 0 && !b.Degraded
}

// limitWords writes a limit in words, such as "60 per minute, 10 at once".
func limitWords(l ratelimit.Limit) string {
	switch {
	case l == ratelimit.Limit{}:
		return ""
	case l == ratelimit.Unlimited:
		return "unlimited"
	}
	words := count(l.Rate) + " per " + period(l.Per)
	if l.Rate == 1 && strings.ContainsAny(period(l.Per), "0123456789") {
		words = "1 every " + period(l.Per)
	}
	return words + ", " + count(cmp.Or(l.Burst, l.Rate)) + " at once"
}

// period writes the Per of a limit exactly.
func period(d time.Duration) string {
	for name, per := range map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour} {
		if d == per {
			return name
		}
	}
	if d%(24*time.Hour) == 0 {
		return count(int64(d/(24*time.Hour))) + " days"
	}
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = strings.TrimSuffix(text, zeros[1:])
		}
	}
	return text
}

// Words are the limit in words.
func (p *policyFacts) Words() string {
	if p.limit == (ratelimit.Limit{}) && p.LimitFunc {
		return "LimitFunc chooses the limit"
	}
	return limitWords(p.limit)
}

// Words are the limit in words.
func (b bucketFacts) Words() string {
	if b.limit == (ratelimit.Limit{}) && b.LimitFunc {
		return "LimitFunc chooses the limit"
	}
	return limitWords(b.limit)
}
