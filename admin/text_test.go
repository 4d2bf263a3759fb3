package admin

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
)

func TestTexts(t *testing.T) {
	for want, got := range map[string]string{
		"0.4 ms":                      span(seconds(400 * time.Microsecond)),
		"2 h":                         span(2 * time.Hour),
		"a\ufffd\ufffd\ufffd b\tc\nd": typed(" a\x00\x7f\u009f b\tc\nd\r\n"),
		"90–1,000":                    between(1000, 910),
		"1,001":                       between(1001, 0),
		"<0.1":                        rate(0.05),
		"0.1":                         rate(0.1),
		"9.9":                         rate(9.94),
		"1,235":                       rate(1234.5),
		"−3.3":                        tenths(-3.21),
		"10":                          tenths(10),
		"unlimited":                   limitWords(ratelimit.Unlimited),
		"":                            limitWords(ratelimit.Limit{}),
		"60 per minute, 10 at once":   limitWords(ratelimit.PerMinute(60).WithBurst(10)),
		"1 every 1h30m, 1 at once":    limitWords(ratelimit.Every(90 * time.Minute)),
		"1 every 6s, 5 at once":       limitWords(ratelimit.Every(6 * time.Second).WithBurst(5)),
		"1 per day, 1 at once":        limitWords(ratelimit.PerDay(1)),
		"5 per 30 days, 5 at once":    limitWords(ratelimit.Limit{Rate: 5, Per: 720 * time.Hour}),
		"100,000 per month in UTC":    limitWords(ratelimit.Quota(100_000, ratelimit.Month)),
		"3 at once":                   limitWords(ratelimit.Concurrency(3)),
		"1 per day in Asia/Kolkata":   limitWords(ratelimit.Quota(1, ratelimit.Day).In("Asia/Kolkata")),
		"1,000 per 10m, 9 at once":    limitWords(ratelimit.Limit{Rate: 1000, Per: 10 * time.Minute, Burst: 9}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWordsOfSlots(t *testing.T) {
	for want, p := range map[string]policyFacts{
		"Slots held by all replicas: 1,005.": {Policy: fleet.Policy{Name: "exports", Limit: "3 at once", Held: 1005}, f: &facts{Replicas: make([]replicaFacts, 3)}},
		"Slots held by replica web-1: 0.":    {Policy: fleet.Policy{Name: "exports", Limit: "3 at once"}, f: &facts{Shown: "web-1", Replicas: make([]replicaFacts, 3)}},
		"Slots held by this replica: 4.":     {Policy: fleet.Policy{Name: "exports", LimitFunc: true, Held: 4}, f: &facts{Replicas: make([]replicaFacts, 1)}},
		"":                                   {Policy: fleet.Policy{Name: "api", Limit: "60/1m"}, f: &facts{}},
	} {
		if got := p.Slots(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestChart(t *testing.T) {
	until := time.Date(2026, 11, 26, 12, 1, 40, 0, time.UTC)
	c := newChart("chart", "Policy a", reaches[0], 10*time.Second, until, series{"allowed", "allowed", []int64{0, 0, 0, 410, 10}}, series{"denied", "denied", []int64{0, 0, 0, 0, 5}}, series{"would", "would be denied", []int64{0, 0, 0, 0, 0}})
	c.mark([]bool{true, false, true, true, false})
	c.Series = nil
	row := func(seconds int, cells ...string) chartRow {
		return chartRow{until.Add(time.Duration(seconds-60) * time.Second), cells}
	}
	want := &chart{
		ID: "chart", Reach: reaches[0], Slots: 60,
		Label:  "Policy a in the last 10 min, per second: allowed at most 41, denied at most 0.5, would be denied at most 0",
		Values: []string{"60", "40", "20", "0"},
		Grid:   []string{"0", "33.3", "66.7", "100"},
		Times:  []tick{{"3.3", "11:52"}, {"23.3", "11:54"}, {"43.3", "11:56"}, {"63.3", "11:58"}, {"83.3", "12:00"}},
		Area:   "55.5,100 55.5,100 57.5,100 58.5,31.7 59.5,98.3 59.5,100",
		Lines:  []line{{"allowed", "55.5,100 57.5,100 58.5,31.7 59.5,98.3"}, {"denied", "55.5,100 58.5,100 59.5,99.2"}},
		Bands:  []band{{"55", "1"}, {"57", "2"}},
		Rows:   []chartRow{row(50, "1", "0.5", "0"), row(40, "41", "0", "0"), row(30, "0", "0", "0"), row(20, "0", "0", "0"), row(10, "0", "0", "0")},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if empty := newChart("x", "x", reaches[1], time.Minute, until, series{"a", "a", nil}); empty.Area != "" || empty.Rows != nil || !slices.Equal(empty.Values, []string{"1", "0.5", "0"}) {
		t.Errorf("without counts: %+v", empty)
	}
}

// The highest value is a round number at or above the highest count, and each one below it is written in full.
func TestValuesOfAChart(t *testing.T) {
	for most, want := range map[float64]string{
		0: "1 0.5 0", 1: "1 0.5 0", 2.9: "3 2 1 0", 3: "3 2 1 0", 4: "4 2 0", 7.5: "10 5 0", 89: "100 50 0", 1400: "1,500 1,000 500 0",
		0.0028: "0.003 0.002 0.001 0", 0.25: "0.3 0.2 0.1 0", 2.5e6: "3,000,000 2,000,000 1,000,000 0",
	} {
		c := new(chart)
		if top := c.scale(most); strings.Join(c.Values, " ") != want || top < most*(1-1e-9) {
			t.Errorf("%v: %q up to %v, want %q", most, c.Values, top, want)
		}
	}
}
