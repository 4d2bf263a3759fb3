package report

import (
	"testing"
	"time"
)

func TestShare(t *testing.T) {
	for got, want := range map[string]string{
		"none " + share(0, 7): "none 0 %", "of none " + share(0, 0): "of none 0 %", share(7, 7): "100 %",
		share(1, 1e6): "<0.01 %", share(2, 3): "67 %", share(999_999, 1e6): ">99.9 %",
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
