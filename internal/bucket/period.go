package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A PeriodUnit is the length of a Period. The zero value is that of a limit that is no quota.
type PeriodUnit uint8

// The units of a Period.
const (
	Hour PeriodUnit = 1 + iota
	Day
	Week // begins on Monday
	Month
)

var unitNames = [...]string{Hour: "hour", Day: "day", Week: "week", Month: "month"}

// String returns the name of u in lower case.
func (u PeriodUnit) String() string {
	if u < Hour || u > Month {
		return fmt.Sprintf("PeriodUnit(%d)", uint8(u))
	}
	return unitNames[u]
}

// A Period is when a quota is renewed: at the begin of each hour, day, week or month of a time zone. NewPeriod makes it.
// There is one for each unit and zone, so that pointers to equal Periods are equal.
type Period struct {
	Unit PeriodUnit
	zone *time.Location
}

var periods sync.Map // *Period by zonedUnit

type zonedUnit struct {
	unit PeriodUnit
	zone string
}

// NewPeriod returns the period of a time zone, which is a name of the IANA database, and UTC if it is empty. The error is
// that of time.LoadLocation. "Local" is an error, because it is another zone on another host.
func NewPeriod(unit PeriodUnit, zone string) (*Period, error) {
	if unit < Hour || unit > Month {
		return nil, fmt.Errorf("%v: must be Hour, Day, Week or Month", unit)
	}
	of := zonedUnit{unit, cmp.Or(zone, "UTC")}
	if known, ok := periods.Load(of); ok {
		return known.(*Period), nil
	}
	location, err := time.LoadLocation(of.zone)
	if err == nil && location == time.Local {
		err = errors.New("Local is not the same zone on all hosts")
	}
	if err != nil {
		return nil, err
	}
	of.zone = strings.Clone(of.zone) // it may be a part of something large
	known, _ := periods.LoadOrStore(of, &Period{unit, location})
	return known.(*Period), nil
}

// ParsePeriod returns the period of a unit's name and a time zone. The error says which of the two is wrong.
func ParsePeriod(unit, zone string) (*Period, error) {
	u := slices.Index(unitNames[:], unit)
	if u < int(Hour) {
		return nil, fmt.Errorf("period %q: must be hour, day, week or month", unit)
	}
	return NewPeriod(PeriodUnit(u), zone)
}

// Location returns the time zone.
func (p *Period) Location() *time.Location { return p.zone }

// String returns what the hash of a bucket in Redis has behind the number of tokens, such as "per month Europe/Berlin".
func (p *Period) String() string { return "per " + p.Unit.String() + " " + p.Location().String() }

// Bounds returns the begin of the period that now is in, and its end, which is the begin of the next one. All are in
// microseconds of Unix time.
//
// A day begins with the first instant that has its date. That is not always the time 00:00: where clocks are set forward
// at midnight there is no such time, and where they are set back across midnight there are two. An hour ends early if
// clocks are set by a part of an hour in it.
func (p *Period) Bounds(now int64) (from, until int64) {
	zone := p.zone
	t := time.UnixMicro(now).In(zone)
	if p.Unit == Hour {
		return hourOf(t)
	}
	year, month, day := t.Date()
	first := p.first(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	for {
		next := p.next(first)
		if until = begins(next, zone); now < until {
			return begins(first, zone), until
		}
		first = next // clocks were set back across midnight, so that now has the date of the period before its own
	}
}

// first returns the first date of the period of a date. Dates are times of UTC here.
func (p *Period) first(date time.Time) time.Time {
	switch p.Unit {
	case Week:
		return date.AddDate(0, 0, -(int(date.Weekday())+6)%7)
	case Month:
		return date.AddDate(0, 0, 1-date.Day())
	default:
		return date
	}
}

// next returns the first date of the period behind the one that begins with a date.
func (p *Period) next(first time.Time) time.Time {
	switch p.Unit {
	case Week:
		return first.AddDate(0, 0, 7)
	case Month:
		return first.AddDate(0, 1, 0)
	default:
		return first.AddDate(0, 0, 1)
	}
}

// begins returns the first instant of a date in a zone. A date that the zone has skipped begins with the next one.
func begins(date time.Time, zone *time.Location) int64 {
	t := date.Add(-26 * time.Hour) // the date has begun nowhere
	for {
		_, offset := t.In(zone).Zone()
		midnight := date.Add(-time.Duration(offset) * time.Second)
		_, change := t.In(zone).ZoneBounds()
		// On the last day of a leap year, Go may return a change that is over, where a rule and no table says what comes.
		if change.IsZero() || !change.After(t) || midnight.Before(change) {
			return max(midnight.UnixMicro(), t.UnixMicro()) // t, if the change has skipped midnight
		}
		t = change
	}
}

const hour = int64(time.Hour / time.Microsecond)

// longest has the longest periods. No zone has set its clocks back by more than a day.
var longest = [...]int64{Hour: hour, Day: 48 * hour, Week: 8 * 24 * hour, Month: 32 * 24 * hour}

// hourOf returns the bounds of an hour. Clocks that are set by whole hours do not move them.
func hourOf(t time.Time) (from, until int64) {
	minutes := minutesAhead(t)
	from = t.UnixMicro() - floorMod(t.UnixMicro()+minutes, hour)
	until = from + hour
	begin, end := t.ZoneBounds()
	if !begin.IsZero() && minutesAhead(begin.Add(-1)) != minutes {
		from = max(from, begin.UnixMicro())
	}
	if !end.IsZero() && minutesAhead(end) != minutes {
		until = min(until, end.UnixMicro())
	}
	return from, until
}

// minutesAhead returns by how much of an hour the clocks at t are ahead of UTC.
func minutesAhead(t time.Time) int64 {
	_, offset := t.Zone()
	return floorMod(int64(offset)*1_000_000, hour)
}

func floorMod(a, b int64) int64 { return (a%b + b) % b }
