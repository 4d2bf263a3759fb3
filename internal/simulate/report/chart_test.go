package report

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func number(t *testing.T, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// place returns where a value stands on an axis between two of its ticks.
func place(t *testing.T, ticks []tick, value float64, scale func(float64) float64) float64 {
	t.Helper()
	read := func(text string) float64 {
		return scale(number(t, strings.TrimSuffix(strings.ReplaceAll(text, ",", ""), " %")))
	}
	first, last := ticks[0], ticks[len(ticks)-1]
	a, b := number(t, first.At), number(t, last.At)
	return a + (b-a)*(scale(value)-read(first.Text))/(read(last.Text)-read(first.Text))
}

// The points of a curve stand where its axes say.
func TestTheAxesOfACurve(t *testing.T) {
	p := &Policy{Requests: 1000, Clients: 100}
	for i, rate := range []float64{5, 10, 20, 60, 100, 240} {
		denied := []int64{1000, 730, 402, 55, 1, 0}[i]
		p.Curve = append(p.Curve, Point{Limit: "60/1m", PerSecond: rate / 60, Own: rate == 60, RequestsDenied: denied, ClientsDenied: denied / 20})
	}
	for _, c := range p.curves() {
		if len(c.XTicks) < 4 || len(c.YTicks) != 6 || c.XTitle != "rate per minute, the burst in proportion" {
			t.Fatalf("%s: %d and %d ticks, %s", c.Class, len(c.XTicks), len(c.YTicks), c.XTitle)
		}
		linear := func(x float64) float64 { return x }
		for i, at := range p.Curve {
			x := place(t, c.XTicks, at.PerSecond*60, math.Log)
			for n, share := range []float64{float64(at.RequestsDenied) / 10, float64(at.ClientsDenied)} {
				m, y := c.Lines[n].Marks[i], place(t, c.YTicks, share, linear)
				if math.Abs(number(t, m.X)-x) > 0.2 || math.Abs(number(t, m.Y)-y) > 0.2 {
					t.Errorf("%s: %v per minute with %v %% is at %s,%s, want %.1f,%.1f", c.Class, at.PerSecond*60, share, m.X, m.Y, x, y)
				}
			}
			if at.Own && c.Own.X != c.Lines[0].Marks[i].X {
				t.Errorf("%s: the policy is at %s", c.Class, c.Own.X)
			}
		}
	}
}

// The bars of denials over time stand where the axes say.
func TestTheAxesOfBars(t *testing.T) {
	begin := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	p := &Policy{}
	for i := range 48 {
		p.When = append(p.When, Span{From: begin.Add(time.Duration(i) * 30 * time.Minute), Requests: 200, Denied: int64(i * i % 37)})
	}
	r := &Report{From: begin, To: begin.Add(24*time.Hour - time.Second)}
	for _, c := range p.bars(r.clock(), "UTC") {
		hour := func(text string) float64 {
			at, err := time.Parse("15:04", text)
			if err != nil {
				t.Fatal(err)
			}
			return at.Sub(at.Truncate(24 * time.Hour)).Hours()
		}
		first, last := c.XTicks[0], c.XTicks[len(c.XTicks)-1]
		perHour := (number(t, last.At) - number(t, first.At)) / (hour(last.Text) - hour(first.Text))
		bars := c.Bars
		for i, s := range p.When {
			if s.Denied == 0 {
				continue
			}
			bar := bars[0]
			bars = bars[1:]
			from := number(t, first.At) + perHour*(float64(i)/2-hour(first.Text))
			middle := number(t, bar.X) + number(t, bar.Width)/2
			y := place(t, c.YTicks, float64(s.Denied), func(x float64) float64 { return x })
			if math.Abs(middle-from-perHour/4) > 0.3 || math.Abs(number(t, bar.Y)-y) > 1 || math.Abs(number(t, bar.Y)+number(t, bar.Height)-number(t, c.Bottom)) > 0.2 {
				t.Errorf("%s: %d at %v is %+v", c.Class, s.Denied, s.From, bar)
			}
		}
		if len(bars) > 0 {
			t.Errorf("%s: %d bars too many", c.Class, len(bars))
		}
	}
}
