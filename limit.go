package ratelimit

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Limit is how much a policy allows: Rate tokens per Per, and up to Burst at once. A bucket starts
// full, so a client may make Burst requests at once and Rate per Per from then on.
//
// Limits from one a month to a million a second are exact. New refuses a Limit that integers of 53 bits
// cannot hold to within 1e-9, and says what would fit. A rate of 0 is for Policy.LimitFunc only.
type Limit struct {
	Rate  int64         // tokens that are added per Per
	Per   time.Duration // the time in which they are added, evenly
	Burst int64         // capacity of the bucket in tokens; 0 means Rate
}

// Unlimited exempts a request from a policy. It is meant for Policy.LimitFunc.
var Unlimited = Limit{Rate: math.MaxInt64}

// PerSecond is a Limit of n per second, and n at once unless WithBurst says otherwise.
func PerSecond(n int64) Limit { return Limit{Rate: n, Per: time.Second} }

// PerMinute is a Limit of n per minute, and n at once unless WithBurst says otherwise.
func PerMinute(n int64) Limit { return Limit{Rate: n, Per: time.Minute} }

// PerHour is a Limit of n per hour, and n at once unless WithBurst says otherwise.
func PerHour(n int64) Limit { return Limit{Rate: n, Per: time.Hour} }

// PerDay is a Limit of n per 24 hours, and n at once unless WithBurst says otherwise.
func PerDay(n int64) Limit { return Limit{Rate: n, Per: 24 * time.Hour} }

// Every is a Limit of one per interval, and one at once unless WithBurst says otherwise.
func Every(interval time.Duration) Limit { return Limit{Rate: 1, Per: interval} }

// WithBurst returns l with a capacity of n tokens.
func (l Limit) WithBurst(n int64) Limit {
	l.Burst = n
	return l
}

// burst returns the capacity with its default. With a rate of 0 there is none, and so no capacity.
func (l Limit) burst() int64 {
	if l.Rate == 0 {
		return 0
	}
	return cmp.Or(l.Burst, l.Rate)
}

func (l Limit) compile() (store.Limit, error) {
	return store.NewLimit(l.Rate, l.Per, cmp.Or(l.Burst, l.Rate))
}

// String returns the text form of l: "60/1m", "60/1m burst 10" or "unlimited". ParseLimit reads it, unless l is
// malformed or has a rate of 0: "0/24h" is for logs only.
func (l Limit) String() string {
	if l == Unlimited {
		return "unlimited"
	}
	text := strconv.FormatInt(l.Rate, 10) + "/" + shortDuration(l.Per)
	if l.Burst != 0 {
		text += " burst " + strconv.FormatInt(l.Burst, 10)
	}
	return text
}

// shortDuration is d.String without the zeros at its end: "1m" for "1m0s".
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

// ParseLimit reads the text form of a Limit: a rate, a slash, a duration, and if the capacity differs
// from the rate "burst" and the capacity: "60/1m burst 10". The duration is one of these, in lower case:
//   - a duration of time.ParseDuration, such as "1m", "1h30m" or "0.5s", or whole days, such as "7d"
//   - a number and a word, such as "30 seconds" or "5min": sec, second, min, minute, hr, hour or day, also in the plural
//   - a unit or a word alone, for one of it: "60/m", "60/min", "100/day"
//
// "unlimited" is Unlimited. The error says which part is malformed or, for a Limit that New would refuse, which field
// and why. A rate of 0 is an error, too: in a Policy.LimitFunc, write PerDay(0).
func ParseLimit(text string) (Limit, error) {
	if text == Unlimited.String() {
		return Unlimited, nil
	}
	wrong := func(err error) (Limit, error) {
		return Limit{}, fmt.Errorf("ratelimit: limit %q: %w", text, err)
	}
	rate, rest, ok := strings.Cut(text, "/")
	if !ok {
		return wrong(fmt.Errorf(`must be like "60/1m" or "60/1m burst 10"`))
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
		return wrong(err)
	}
	return l, nil
}

func parseCount(what, text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63) // a ParseInt would take a sign
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s %q: must be a whole number above 0", what, text)
	}
	return int64(n), nil
}

// unitOf has the units of the words for them.
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
	return 0, fmt.Errorf(`duration %q: must be like "1s", "min", "24h" or "7 days"`, text)
}

// MarshalText implements encoding.TextMarshaler by String. The zero Limit is the empty text.
func (l Limit) MarshalText() ([]byte, error) {
	if l == (Limit{}) {
		return nil, nil
	}
	return []byte(l.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler by ParseLimit. The empty text is the zero Limit.
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

// A LimitFunc may return a rate of 0, a quota of nothing. No bucket has such a limit, and so the Store is not asked.

// isZero reports whether l allows nothing. The zero Limit is not such a limit: it stands for Policy.Limit.
func (l Limit) isZero() bool { return l.Rate == 0 && l != Limit{} }

// A barred is what a policy with a rate of 0 says of a request.
type barred struct {
	at     int // how many charges come before it
	result Result
}

// bar notes that p denies a request by a rate of 0.
func (c *call) bar(p *policy, limit Limit, key string, cost int64) {
	c.barred = append(c.barred, barred{len(c.charges), Result{
		Policy: p.Name,
		Key:    key,
		Limit:  limit,
		Cost:   cost,
		Shadow: p.Shadow,
		Hidden: p.Hidden,
		State:  store.State{RetryAfter: store.Never},
	}})
}

// isBarred reports whether a policy that is no Shadow has a rate of 0.
func (c *call) isBarred() bool {
	for i := range c.barred {
		if !c.barred[i].result.Shadow {
			return true
		}
	}
	return false
}

// insertBarred inserts bars among the results of the charges, which begin at before, and returns all of these.
func (d *Decision) insertBarred(before int, bars []barred) []Result {
	own := make([]Result, 0, len(d.Results)-before+len(bars))
	from := before
	for _, b := range bars {
		own = append(own, d.Results[from:before+b.at]...)
		own = append(own, b.result)
		from = before + b.at
	}
	own = append(own, d.Results[from:]...)
	d.Results = append(d.Results[:before:before], own...)
	return d.Results[before:]
}

// concludeBarred concludes a decision for which no bucket is charged. The request is denied if it is barred.
func (l *Limiter) concludeBarred(x *exchange, c *call, leftOut error, start start) error {
	if len(c.barred) == 0 {
		return l.pass(x, leftOut, start)
	}
	d := &x.decision
	d.Allowed, d.At = !c.isBarred(), time.Now()
	if outer := x.outer(); outer != nil {
		d.Results = append(d.Results, outer.Results...)
		d.Waited = outer.Waited
	}
	before := len(d.Results)
	for i := range c.barred {
		d.Results = append(d.Results, c.barred[i].result)
	}
	l.report(x, d.Results[before:], 0, leftOut, start)
	return leftOut
}
