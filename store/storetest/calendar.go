package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// RunCalendar is [RunSequence] with quotas, over years, from the end of 2011 on. Their time zones have clocks that change at
// midnight or by half an hour, an offset of a quarter of an hour, and a day that is left out. Two limits are rates, and the
// limits of buckets change. Time moves forwards only, by three days with each call on average, and often to the end of a period
// or to just before it. Make at most 10,000 steps, because the times of a Store have an end.
func RunCalendar(t *testing.T, open Open, steps int, seed uint64) {
	r := newRig(t, open)
	start := time.Date(2011, 11, 28, 10, 20, 30, 123_456_000, time.UTC) // Samoa has left out the 30th of December 2011
	r.nanos.Store(start.UnixNano())
	r.wait(0)
	s := sequence{rig: r, limits: calendar(r)}
	s.run(s.movePeriod, steps, seed)
	years := time.Unix(0, r.nanos.Load()).Sub(start).Hours() / 24 / 365
	t.Logf("%d calls in %.1f years, %d buckets were forgotten", steps, years, s.forgotten)
	if years < float64(steps)/400 {
		t.Errorf("%d calls in %.1f years, want more years", steps, years)
	}
}

// calendar are quotas of all units, in time zones that are hard to get right, and rates.
func calendar(r *rig) (limits []store.Limit) {
	for i, zone := range []string{"America/Santiago", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"} {
		for unit := store.Hour; unit <= store.Month; unit++ {
			limits = append(limits, r.quota([]int64{3, 10, 1_000_000}[(i+int(unit))%3], unit, zone))
		}
	}
	return slices.Insert(limits, 7, r.limit(1, hour, 3), r.limit(100, 30*day, 500), r.quota(1<<52, store.Month, ""))
}

// movePeriod moves the clock by nothing, by some time, or to about the end of a period.
func (s *sequence) movePeriod() {
	var end time.Duration
	if l := s.limits[s.rand.IntN(len(s.limits))]; l.IsQuota() {
		end = time.Duration(periodEnd(l.Period, s.now())-s.now()) * micro
	}
	d := []time.Duration{
		0, 0, 0, micro, s.retry, max(0, s.retry-micro), end, end + micro, max(0, end-micro), s.upTo(second), s.upTo(3 * hour), s.upTo(3 * day),
	}[s.rand.IntN(12)]
	if s.rand.IntN(50) == 0 {
		d = s.upTo(100 * day)
	}
	d = min(d, 400*day) // a lock may be for longer, and the test is not to end in it
	s.retry -= min(s.retry, d)
	s.forgotten += s.wait(d.Truncate(micro))
}
