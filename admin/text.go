package admin

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// span writes a duration.
func span(v any) string {
	switch v := v.(type) {
	case seconds:
		return numbers.Span(time.Duration(v))
	case time.Duration:
		return numbers.Span(v)
	}
	return ""
}

// between writes a count that may be too high by as much as wrong.
func between(n, wrong int64) string {
	if wrong <= 0 {
		return numbers.Count(n)
	}
	return numbers.Count(n-wrong) + "–" + numbers.Count(n)
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
		return numbers.Count(int64(math.Round(x)))
	}
}

// tenths writes tokens with one digit, rounded down: a bucket that is not full never seems so.
func tenths(x float64) string {
	text := strconv.FormatFloat(math.Floor(x*10)/10, 'f', 1, 64)
	return strings.Replace(strings.TrimSuffix(text, ".0"), "-", "−", 1)
}

func stamp(v any) string { return asTime(v).UTC().Format(time.RFC3339) }
func clock(v any) string { return asTime(v).UTC().Format("15:04:05") }
func date(v any) string  { return asTime(v).UTC().Format("2 Jan 2006 15:04") }
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

// Text is what the bucket held when it was read, in words.
func (b bucketFacts) Text() string {
	switch {
	case b.State == "refuses":
		return "Refuses all requests"
	case b.State == "blocked":
		return "Blocked"
	case b.Burst == 0:
		return "Full"
	case b.HasSlots():
		return numbers.Count(b.Held) + " of " + numbers.Count(b.Burst) + " slots held"
	case b.limit.Period() != 0:
		return "Used " + numbers.Count(b.Burst-int64(b.Tokens)) + " of " + numbers.Count(b.Burst) + " " + thisPeriod(b.limit)
	}
	return tenths(b.Tokens) + " of " + numbers.Count(b.Burst) + " tokens"
}

// thisPeriod is the period of a quota, as it is now.
func thisPeriod(l ratelimit.Limit) string {
	if l.Period() == ratelimit.Day {
		return "today"
	}
	return "this " + l.Period().String()
}

// Next is when it goes on if no other request comes, in words. Nobody knows how many tokens others take meanwhile.
func (b bucketFacts) Next() string {
	switch {
	case b.State == "refuses":
		return "The store is unavailable, and this policy fails closed: it answers 503."
	case b.State == "blocked":
		return "No request is allowed for " + span(b.NextIn) + "."
	case !b.PeriodEnds.IsZero():
		ends := b.PeriodEnds.Format("2 Jan 15:04 MST")
		if b.NextIn > 0 {
			return "The next request is allowed from " + ends + " on."
		}
		return "The " + b.limit.Period().String() + " ends " + ends + "."
	case b.State == "full" && b.HasSlots():
		return "No request holds a slot."
	case b.State == "full":
		return "Never used, or refilled."
	case b.HasSlots() && b.NextIn == 0:
		return "The next request takes a slot that is free."
	case b.HasSlots():
		return "The next request is allowed when another one releases its slot."
	case b.NextIn == 0:
		return "If no request comes, it is full in " + span(b.FullIn) + "."
	}
	return "If no request comes, it has a token in " + span(b.NextIn) + ", and is full in " + span(b.FullIn) + "."
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

// Percent is how long the bar is.
func (b bucketFacts) Percent() string {
	switch {
	case b.State == "full" && !b.showsUse():
		return "100"
	case b.Burst == 0:
		return "0"
	}
	return strconv.FormatFloat(100*b.Level()/float64(b.Burst), 'f', 2, 64)
}

// showsUse reports whether the bar shows what is used, as Text does, and not what is left.
func (b bucketFacts) showsUse() bool { return b.limit.Period() != 0 || b.HasSlots() }

// Level is the number of tokens that the bar shows.
func (b bucketFacts) Level() float64 {
	switch {
	case b.State == "blocked":
		return 0
	case b.showsUse():
		return float64(b.Burst) - b.Tokens
	}
	return min(max(0, math.Floor(b.Tokens*1000)/1000), float64(b.Burst))
}

// Top is the number of tokens of the longest bar.
func (b bucketFacts) Top() int64 { return max(1, b.Burst) }

// HasSlots reports whether requests hold slots of the bucket. Nobody else can change how many.
func (b bucketFacts) HasSlots() bool { return b.limit.IsConcurrency() }

// Refundable reports whether a refund would change the bucket, and its limit is known.
func (b bucketFacts) Refundable() bool {
	return b.State != "full" && b.State != "unknown" && b.Burst > 0 && !b.Degraded
}

// limitWords writes a limit in words, such as "60 per minute, 10 at once", "1,000 per month in UTC" or "3 at once".
func limitWords(l ratelimit.Limit) string {
	switch {
	case l == ratelimit.Limit{}:
		return ""
	case l == ratelimit.Unlimited:
		return "unlimited"
	case l.IsConcurrency():
		return numbers.Count(l.Rate) + " at once"
	case l.Period() != 0:
		return numbers.Count(l.Rate) + " per " + l.Period().String() + " in " + cmp.Or(l.Zone(), "UTC")
	}
	words := numbers.Count(l.Rate) + " per " + period(l.Per)
	if l.Rate == 1 && strings.ContainsAny(period(l.Per), "0123456789") {
		words = "1 every " + period(l.Per)
	}
	return words + ", " + numbers.Count(cmp.Or(l.Burst, l.Rate)) + " at once"
}

// period writes the Per of a limit exactly.
func period(d time.Duration) string {
	for name, per := range map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour} {
		if d == per {
			return name
		}
	}
	if d%(24*time.Hour) == 0 {
		return numbers.Count(int64(d/(24*time.Hour))) + " days"
	}
	return numbers.Short(d)
}

// Words are the limit in words.
func (b bucketFacts) Words() string {
	if b.limit == (ratelimit.Limit{}) && b.LimitFunc {
		return "LimitFunc chooses the limit"
	}
	return limitWords(b.limit)
}
