package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Limit is a rate and a burst, as in [Policy.Limit]. A bucket holds up to Burst tokens, starts full, and gains Rate
// tokens per Per, evenly. The middleware that enforces policies is [Limiter.Limit].
//
// PerHour(5) allows 5 requests at once and then one every 12 minutes: 9 in less than an hour.
// Every(time.Hour).WithBurst(5) allows 5 in less than an hour. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/choosing-a-limit.md.
//
// Limits from one a month to a million a second are exact. [New] returns an error for a Limit that it cannot keep
// within a relative error of 1e-9, and says what would fit. A rate of 0, such as PerDay(0), denies every request. Only
// [Policy.LimitFunc] and the policy of a [Charge] may have it.
//
// [Quota] returns another kind of Limit: Rate tokens in each period of the calendar, which all come when it begins.
// [Concurrency] returns a third: at most Rate requests at once.
type Limit struct {
	Rate  int64         // tokens added per Per, or the tokens of a Period
	Per   time.Duration // the time in which Rate tokens are added
	Burst int64         // capacity of the bucket in tokens; default Rate

	calendar unique.Handle[calendar] // of a quota or a concurrency limit, which have no Per and no Burst
}

// A calendar says when a quota begins anew. Limits have a handle of it, because each request copies and compares some.
type calendar struct {
	period Period
	zone   string
	slots  bool // it is no quota, but a concurrency limit: see Concurrency
}

// A Period is the part of the calendar in which a quota can be used.
type Period = store.PeriodUnit

// The periods of a quota.
const (
	Hour  = store.Hour
	Day   = store.Day
	Week  = store.Week // begins on Monday
	Month = store.Month
)

// Quota returns a Limit of n tokens in each period, such as Quota(100_000, Month). All n come when the period begins, by the
// calendar of UTC or of another time zone: see [Limit.In]. The clock of the Store decides when that is.
//
// A quota says nothing of how fast its tokens are used. Put a policy with a rate beside it. A request waits for the
// next period only as long as [Policy.MaxWait] allows. A quota that changes within a period keeps what was used. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/plans.md.
func Quota(n int64, period Period) Limit { return Limit{Rate: n}.with(calendar{period: period}) }

// In returns l, a quota, for the calendar of a time zone, such as "Europe/Berlin". [New] returns an error if the host does
// not know it. Import time/tzdata into a program for hosts without a database of time zones.
func (l Limit) In(zone string) Limit {
	return l.with(calendar{period: l.Period(), zone: zone, slots: l.IsConcurrency()})
}

// Concurrency returns a Limit of n requests at once for each key, over all replicas. A request holds a slot until its handler
// has returned. [Limiter.Acquire] takes a slot for other work, such as a job. Beside a rate, put it into a policy of its own
// and mount both with one [Limiter.Limit]: a request then takes a slot and a token, or neither. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/concurrency.md.
func Concurrency(n int64) Limit { return Limit{Rate: n}.with(calendar{slots: true}) }

// IsConcurrency reports whether l is a [Concurrency].
func (l Limit) IsConcurrency() bool {
	return l.calendar != (unique.Handle[calendar]{}) && l.calendar.Value().slots
}

// Period returns the period of a quota, and 0 for other limits.
func (l Limit) Period() Period {
	if l.calendar == (unique.Handle[calendar]{}) {
		return 0
	}
	return l.calendar.Value().period
}

// Zone returns the time zone of a quota, as [Limit.In] has set it. "" is UTC.
func (l Limit) Zone() string {
	if l.calendar == (unique.Handle[calendar]{}) {
		return ""
	}
	return l.calendar.Value().zone
}

// with returns l with a calendar. The zero calendar has no handle, so that equal Limits are the same.
func (l Limit) with(c calendar) Limit {
	l.calendar = unique.Handle[calendar]{}
	if c != (calendar{}) {
		l.calendar = unique.Make(c)
	}
	return l
}

// Unlimited exempts a request from a policy, usually as a result of [Policy.LimitFunc].
var Unlimited = Limit{Rate: math.MaxInt64}

// PerSecond returns a Limit of n tokens per second with a burst of n. [Limit.WithBurst] changes the burst.
func PerSecond(n int64) Limit { return Limit{Rate: n, Per: time.Second} }

// PerMinute returns a Limit of n tokens per minute with a burst of n. [Limit.WithBurst] changes the burst.
func PerMinute(n int64) Limit { return Limit{Rate: n, Per: time.Minute} }

// PerHour returns a Limit of n tokens per hour with a burst of n. [Limit.WithBurst] changes the burst.
func PerHour(n int64) Limit { return Limit{Rate: n, Per: time.Hour} }

// PerDay returns a Limit of n tokens per 24 hours with a burst of n. [Limit.WithBurst] changes the burst.
func PerDay(n int64) Limit { return Limit{Rate: n, Per: 24 * time.Hour} }

// Every returns a Limit of one token per interval with a burst of 1. [Limit.WithBurst] changes the burst.
func Every(interval time.Duration) Limit { return Limit{Rate: 1, Per: interval} }

// WithBurst returns l with a burst of n tokens: so many requests are allowed at once when the bucket is full.
func (l Limit) WithBurst(n int64) Limit {
	l.Burst = n
	return l
}

// burst returns Burst or its default. A limit with a rate of 0 has no bucket, and so a burst of 0.
func (l Limit) burst() int64 {
	if l.Rate == 0 {
		return 0
	}
	return cmp.Or(l.Burst, l.Rate)
}

func (l Limit) compile() (store.Limit, error) {
	switch {
	case l.IsConcurrency():
		return l.compileConcurrency()
	case l.calendar != (unique.Handle[calendar]{}):
		return l.compileQuota()
	}
	return store.NewLimit(l.Rate, l.Per, cmp.Or(l.Burst, l.Rate))
}

func (l Limit) compileQuota() (store.Limit, error) {
	switch {
	case l.Period() == 0:
		return store.Limit{}, fmt.Errorf("Zone %q: must be empty without a Period, because a rate has no calendar", l.Zone())
	case l.Period() > Month:
		return store.Limit{}, fmt.Errorf("Period %d: must be Hour, Day, Week or Month", l.Period())
	case l.Per != 0:
		return store.Limit{}, fmt.Errorf("Per %v: must be 0 with a Period: use two policies for a quota and a rate", l.Per)
	case l.Zone() == "Local":
		return store.Limit{}, errors.New(`Zone "Local": must be a name such as "Europe/Berlin": Local is another zone on another host`)
	case l.Burst != 0:
		return store.Limit{}, fmt.Errorf("Burst %d: must be 0 with a Period: use two policies for a quota and a rate", l.Burst)
	}
	p, err := store.NewPeriod(l.Period(), l.Zone())
	if err != nil {
		// The error has the name again, and not in quotes.
		return store.Limit{}, fmt.Errorf("Zone %q: must be a time zone that this host knows, such as \"Europe/Berlin\"; import time/tzdata if it has no database of time zones", l.Zone())
	}
	return store.NewQuota(l.Rate, p)
}

func (l Limit) compileConcurrency() (store.Limit, error) {
	switch {
	case l.Per != 0:
		return store.Limit{}, fmt.Errorf("Per %v: must be 0 in a concurrency limit: use two policies for it and a rate", l.Per)
	case l.Burst != 0:
		return store.Limit{}, fmt.Errorf("Burst %d: must be 0 in a concurrency limit: use two policies for it and a rate", l.Burst)
	case l.Zone() != "":
		return store.Limit{}, fmt.Errorf("Zone %q: must be empty in a concurrency limit, which has no calendar", l.Zone())
	}
	return store.NewConcurrency(l.Rate)
}

// String returns the text form of l, such as "60/1m", "60/1m burst 10", "100000 per month Europe/Berlin", "3 at once" or
// "unlimited".
// [ParseLimit] reads it, unless l is malformed or has a rate of 0: "0/24h" is for logs only.
func (l Limit) String() string {
	if l == Unlimited {
		return "unlimited"
	}
	if l.Period() != 0 {
		return strings.TrimSpace(strconv.FormatInt(l.Rate, 10) + " per " + l.Period().String() + " " + l.Zone())
	}
	if l.IsConcurrency() {
		return strconv.FormatInt(l.Rate, 10) + atOnce
	}
	text := strconv.FormatInt(l.Rate, 10) + "/" + shortDuration(l.Per)
	if l.Burst != 0 {
		text += " burst " + strconv.FormatInt(l.Burst, 10)
	}
	return text
}

// atOnce ends the text form of a concurrency limit.
const atOnce = " at once"

// shortDuration returns d.String() without the zeros at its end: "1m" for "1m0s".
func shortDuration(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
		if short, ok := strings.CutSuffix(text, "h0m"); ok {
			text = short + "h"
		}
	}
	return text
}

// ParseLimit parses the text form of a [Limit], such as "60/1m" or "60/1m burst 10". It has a rate, a slash, a
// duration, and the burst if that differs from the rate. "unlimited" is [Unlimited]. The duration is one of these, in
// lower case:
//   - a duration of [time.ParseDuration], such as "1m", "1h30m" or "0.5s", or whole days, such as "7d"
//   - a number and a word, such as "30 seconds" or "5min": sec, second, min, minute, hr, hour or day, also in the
//     plural
//   - a unit or a word without a number, which stands for one: "60/m", "60/min", "100/day"
//
// A [Quota] is "100000 per month", or "100000 per month Europe/Berlin" with a time zone. A [Concurrency] is "3 at once".
//
// The error names the malformed part. For a Limit that [New] rejects, it names the field and the reason. A rate of 0 is
// an error: in a [Policy.LimitFunc], write PerDay(0).
func ParseLimit(text string) (Limit, error) {
	if text == Unlimited.String() {
		return Unlimited, nil
	}
	wrong := func(err error) (Limit, error) {
		return Limit{}, fmt.Errorf("ratelimit: limit %q: %w", text, err)
	}
	if count, period, quota := strings.Cut(text, " per "); quota {
		l, err := parseQuota(count, period)
		if err != nil {
			return wrong(err)
		}
		return l, nil
	}
	if count, concurrency := strings.CutSuffix(text, atOnce); concurrency {
		n, err := parseCount("number", count)
		l := Concurrency(n)
		if err == nil {
			_, err = l.compile()
		}
		if err != nil {
			return wrong(err)
		}
		return l, nil
	}
	rate, rest, ok := strings.Cut(text, "/")
	if !ok {
		return wrong(fmt.Errorf(`must be like "60/1m", "60/1m burst 10", "1000 per month" or "3 at once"`))
	}
	per, burst, hasBurst := strings.Cut(rest, " burst ")
	var l Limit
	var err error
	if l.Rate, err = parseCount("rate", rate); err != nil {
		return wrong(err)
	}
	if l.Per, err = parsePer(per); err != nil {
		return wrong(err)
	}
	if hasBurst {
		if l.Burst, err = parseCount("burst", burst); err != nil {
			return wrong(err)
		}
	}
	if _, err := l.compile(); err != nil {
		return wrong(errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))) // errors of texts have one line
	}
	return l, nil
}

func parseQuota(count, period string) (l Limit, err error) {
	unit, zone, zoned := strings.Cut(period, " ")
	if l.Rate, err = parseCount("rate", count); err != nil {
		return l, err
	}
	of := calendar{period: Hour}
	for ; of.period.String() != unit; of.period++ {
		if of.period == Month {
			return l, fmt.Errorf("period %q: must be hour, day, week or month; a rate is like \"60/1m\"", unit)
		}
	}
	if strings.Contains(zone, "burst ") {
		return l, fmt.Errorf("%q: must be left out of a quota: use two policies for a quota and a rate", zone)
	}
	if of.zone = zone; zoned && zone == "" {
		return l, errors.New("Zone \"\": must be a time zone such as \"Europe/Berlin\", or left out with the blank before it")
	}
	l = l.with(of)
	_, err = l.compile()
	return l, err
}

func parseCount(what, text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63) // a ParseInt would take a sign
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s %q: must be from 1 to %d tokens", what, text, int64(bucket.MaxCredits))
	case strings.ContainsAny(text, ",_' "): // as people write 100,000
		return 0, fmt.Errorf("%s %q: must be a whole number above 0, without separators", what, text)
	case err != nil || n == 0:
		return 0, fmt.Errorf("%s %q: must be a whole number above 0", what, text)
	}
	return int64(n), nil
}

// unitOf maps words to units.
var unitOf = map[string]string{
	"sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"day": "d", "days": "d",
}

func parsePer(text string) (time.Duration, error) {
	unit := strings.TrimLeft(text, "0123456789.")
	number := text[:len(text)-len(unit)]
	word := unit
	if number != "" {
		word = strings.TrimPrefix(unit, " ")
	}
	unit = cmp.Or(unitOf[word], unit)
	switch unit {
	case "ns", "us", "µs", "ms", "s", "m", "h", "d":
		number = cmp.Or(number, "1")
	}
	if unit == "d" {
		if n, err := strconv.ParseUint(number, 10, 63); err == nil && n <= math.MaxInt64/uint64(24*time.Hour) {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(number + unit); err == nil && !strings.ContainsAny(text, "+-") {
		return d, nil
	}
	one, err := time.ParseDuration("1" + unit)
	if unit == "d" {
		one, err = 24*time.Hour, nil
	}
	if n, wrong := strconv.ParseFloat(number, 64); err == nil && wrong == nil && n*float64(one) >= math.MaxInt64 {
		return 0, fmt.Errorf("duration %q: must be at most 106751 days", text)
	}
	return 0, fmt.Errorf(`duration %q: must be like "1s", "min", "24h" or "7 days"; a quota is like "1000 per month"`, text)
}

// MarshalText implements [encoding.TextMarshaler] with [Limit.String]. The zero Limit is the empty text.
func (l Limit) MarshalText() ([]byte, error) {
	if l == (Limit{}) {
		return nil, nil
	}
	return []byte(l.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseLimit]. The empty text is the zero Limit.
func (l *Limit) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*l = Limit{}
		return nil
	}
	parsed, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}

// isZero reports whether l allows nothing. It is false for the zero Limit, which stands for Policy.Limit.
func (l Limit) isZero() bool { return l.Rate == 0 && l != Limit{} }
