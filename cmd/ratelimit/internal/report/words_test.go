package report

import (
	"math"
	"testing"
	"time"
)

func TestNumbersInWords(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(-1234567): "-1,234,567", count(math.MinInt64): "-9,223,372,036,854,775,808",
		of(1, "client"): "1 client", of(0, "client"): "0 clients", of(1200, "client"): "1,200 clients",

		"none " + share(0, 7): "none 0 %", "of none " + share(0, 0): "of none 0 %", share(7, 7): "100 %",
		share(1, 1e6): "<0.01 %", share(1, 10_000): "0.01 %", share(99, 10_000): "0.99 %", share(996, 100_000): "1.0 %",
		share(994, 10_000): "9.9 %", share(996, 10_000): "10 %", share(2, 3): "67 %", share(9949, 10_000): "99 %", share(9951, 10_000): "99.5 %", share(999_999, 1e6): ">99.9 %",

		percent(0.999): "99.9 %", percent(0.5): "50 %", percent(1): "100 %", percent(0.99999): "99.999 %", percent(0.07): "7 %",

		span(0): "0 s", span(1e-6): "<0.01 s", span(0.25): "0.25 s", span(0.999): "1.00 s", span(1): "1 s", span(9.94): "9.9 s", span(42.9): "42 s",
		span(119): "119 s", span(120): "2 min", span(860): "14 min 20 s", span(7200): "2 h", span(93784): "26 h 3 min", span(183600): "2 d 3 h",

		size(9999): "9,999 bytes", size(34_120_411): "34 MB", size(1_200_000): "1,200 KB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSpans(t *testing.T) {
	begin := time.Date(2026, 11, 21, 0, 5, 0, 0, time.UTC)
	for _, tt := range []struct {
		n      int
		length time.Duration
		want   time.Duration
	}{
		{2, time.Second, time.Second}, {72, 5 * time.Minute, 5 * time.Minute}, {73, 5 * time.Minute, 10 * time.Minute}, {288, 5 * time.Minute, 30 * time.Minute},
		{300, time.Second, 5 * time.Second}, {300, time.Hour, 6 * time.Hour}, {300, 24 * time.Hour, 7 * day}, {300, 3 * time.Hour, 24 * time.Hour},
		{300, 7001 * time.Second, 35005 * time.Second}, {300, 100 * day, 500 * day},
	} {
		p := &Policy{}
		for i := range tt.n {
			p.When = append(p.When, Span{From: begin.Add(time.Duration(i) * tt.length), Requests: 10, Denied: int64(i % 3)})
		}
		spans, length := p.spans(72)
		var requests, denied int64
		for i, s := range spans {
			requests, denied = requests+s.Requests, denied+s.Denied
			if i > 0 && s.From.Sub(spans[i-1].From) != length {
				t.Errorf("%d of %v: a gap at %v", tt.n, tt.length, s.From)
			}
		}
		var want int64
		for _, s := range p.When {
			want += s.Denied
		}
		if length != tt.want || len(spans) > 72 || requests != int64(10*tt.n) || denied != want {
			t.Errorf("%d of %v: %d of %v with %d requests, %d denied; want %v, %d", tt.n, tt.length, len(spans), length, requests, denied, tt.want, want)
		}
	}
	gaps := &Policy{When: []Span{{From: begin, Denied: 1}, {From: begin.Add(5 * time.Minute), Denied: 2}, {From: begin.Add(time.Hour), Denied: 3}}}
	if spans, length := gaps.spans(72); len(spans) != 13 || length != 5*time.Minute || spans[12].Denied != 3 || spans[11].Denied != 0 {
		t.Errorf("with gaps: %v of %v", spans, length)
	}
	if spans, length := (&Policy{When: gaps.When[:1]}).spans(72); len(spans) != 1 || length != 0 {
		t.Errorf("of one: %v of %v", spans, length)
	}
}
