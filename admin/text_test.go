package admin

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
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
		"1 per day in Asia/Kolkata":   limitWords(ratelimit.Quota(1, ratelimit.Day).In("Asia/Kolkata")),
		"1,000 per 10m, 9 at once":    limitWords(ratelimit.Limit{Rate: 1000, Per: 10 * time.Minute, Burst: 9}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestChart(t *testing.T) {
	c := newChart("Policy a", seconds(5*time.Second), series{"allowed", "allowed", []int64{0, 0, 0, 20, 10}}, series{"denied", "denied", []int64{0, 0, 0, 0, 5}}, series{"would", "would be denied", []int64{0, 0, 0, 0, 0}})
	c.mark([]bool{true, false, true, true, false})
	want := &chart{
		Label: "Policy a in the last ten minutes, per second: allowed 2, at most 4; denied 1, at most 1; would be denied 0, at most 0",
		Most:  "4",
		Area:  "231.9,48 231.9,47 235.9,47 238,1 240,24 240,48",
		Lines: []line{{"allowed", "231.9,47 235.9,47 238,1 240,24"}, {"denied", "231.9,47 238,47 240,35.5"}},
		Bands: []band{{"229.9", "2"}, {"233.9", "4"}},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if empty := newChart("x", seconds(time.Second), series{"a", "a", nil}); empty.Area != "" || empty.Most != "0" {
		t.Errorf("without counts: %+v", empty)
	}
}
