package bucket

import (
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones that a host may lack
)

// Each case is a time and the period that has it.
func TestPeriodBounds(t *testing.T) {
	for _, c := range []struct {
		unit             PeriodUnit
		zone             string
		now, from, until string
		hours            float64
	}{
		{Hour, "", "2026-03-29T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", 1},
		{Hour, "Asia/Kolkata", "2026-03-29T01:29:59Z", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", 1},
		{Hour, "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", 1}, // the second hour of two
		{Hour, "Australia/Lord_Howe", "2026-04-04T15:10:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z", 0.5},
		{Hour, "", "1969-12-31T23:59:59.999999Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z", 1},

		{Day, "", "2026-11-26T00:00:00Z", "2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z", 24},
		{Day, "", "2026-11-26T23:59:59.999999Z", "2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z", 24},
		{Day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", 23},
		{Day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", 25},
		{Day, "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z", 23}, // no midnight
		{Day, "America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", 25},   // two
		{Day, "America/St_Johns", "2006-10-29T02:31:30Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", 25}, // one minute, then the day before again
		{Day, "America/St_Johns", "2006-10-29T02:45:00Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", 25},
		{Day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", 24}, // the next day was skipped
		{Day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", 24},

		{Week, "", "2026-11-26T12:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", 168},
		{Week, "", "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", 168},
		{Week, "Europe/Berlin", "2026-03-29T21:59:59Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z", 167},

		{Month, "", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", 29 * 24},
		{Month, "", "2100-02-28T12:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z", 28 * 24},
		{Month, "Europe/Berlin", "2026-10-31T22:59:59Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z", 31*24 + 1},
		{Month, "", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", 31 * 24},
	} {
		p, err := NewPeriod(c.unit, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, until := p.Bounds(micros(t, c.now))
		if from != micros(t, c.from) || until != micros(t, c.until) || time.Duration(until-from)*time.Microsecond != time.Duration(c.hours*float64(time.Hour)) {
			t.Errorf("%v at %s: from %s until %s, want %s and %s", p, c.now, text(from), text(until), c.from, c.until)
		}
	}
}

// The periods of a zone follow each other without a gap, and each time is in the one that has it.
func TestPeriodsHaveNoGaps(t *testing.T) {
	for _, zone := range []string{
		"", "Europe/Berlin", "America/Santiago", "America/Havana", "America/St_Johns", "America/Sao_Paulo", "Asia/Beirut",
		"Africa/Cairo", "Asia/Gaza", "Asia/Tehran", "Atlantic/Azores", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein",
		"Antarctica/Troll", "America/Asuncion", "Africa/Casablanca", "Pacific/Chatham",
	} {
		for unit := Hour; unit <= Month; unit++ {
			p, err := NewPeriod(unit, zone)
			if err != nil {
				t.Fatal(err)
			}
			begin, end := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), time.Date(2070, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
			if unit == Hour {
				begin = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
				end = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
			}
			for now := begin; now < end; {
				from, until := p.Bounds(now)
				if from > now || until <= now {
					t.Fatalf("%v: %s is not from %s to %s", p, text(now), text(from), text(until))
				}
				for _, in := range []int64{from, from + (until-from)/2, until - 1} {
					if f, u := p.Bounds(in); f != from || u != until {
						t.Fatalf("%v: %s is from %s to %s, and %s is from %s to %s", p, text(now), text(from), text(until), text(in), text(f), text(u))
					}
				}
				now = until
			}
		}
	}
}

func TestPeriodsOfAZoneAreEqual(t *testing.T) {
	a, _ := NewPeriod(Month, "Europe/Berlin")
	b, _ := NewPeriod(Month, string([]byte("Europe/Berlin")))
	if a != b || a.String() != "per month Europe/Berlin" {
		t.Errorf("%v and %v", a, b)
	}
	if _, err := NewPeriod(Month, "Local"); err == nil {
		t.Error("Local, which is another zone on another host, is accepted")
	}
	if _, err := NewPeriod(Month, "Europe/Nowhere"); err == nil {
		t.Error("a zone that does not exist is accepted")
	}
	a, _ = NewPeriod(Day, "UTC")
	b, _ = NewPeriod(Day, "")
	if a != b || a.String() != "per day UTC" {
		t.Errorf("%v and %v", a, b)
	}
	if _, err := NewPeriod(Month+1, ""); err == nil {
		t.Error("a unit that does not exist is accepted")
	}
}

func micros(t *testing.T, s string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

func text(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339Nano) }
