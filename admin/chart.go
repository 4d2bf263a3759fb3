package admin

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// A reach is how far back a chart goes.
type reach struct {
	Name  string // as the parameter range has it
	Words string
	long  time.Duration
	tick  time.Duration // between two times of its axis
}

var reaches = []reach{
	{"10m", "10 min", 10 * time.Minute, 2 * time.Minute},
	{"1h", "1 h", time.Hour, 10 * time.Minute},
	{"6h", "6 h", 6 * time.Hour, time.Hour},
}

// A chart draws counts as lines over time, and lists them in a table. The colours are those of its classes: the page has
// no styles. Heights are per cent of the chart's, and a step is one unit wide.
type chart struct {
	ID     string
	Label  string // for those who do not see it
	Reach  reach
	Others []link // the other reaches

	Whose   string // requests are counted
	Without int    // replicas that do not publish this history

	Slots  int
	Values []string // at the left, the highest first
	Grid   []string
	Times  []tick

	Area   string // below the first line
	Lines  []line
	Bands  []band
	Series []series
	Rows   []chartRow // the newest first
}

// A tick is a time of the axis, at a part of its width in per cent.
type tick struct{ X, Text string }

type line struct{ Class, Points string }

// A band marks a period, such as an outage.
type band struct{ X, Width string }

// A chartRow is what was counted in a step, per second.
type chartRow struct {
	Start time.Time
	Cells []string
}

// A series is the counts of one line, oldest first.
type series struct {
	Class, Name string
	counts      []int64
}

// newChart draws series that end at until. Shorter ones than reach stand at the right.
func newChart(id, of string, reach reach, step time.Duration, until time.Time, all ...series) *chart {
	c := &chart{ID: id, Reach: reach, Slots: int(reach.long / step), Series: all}
	most, longest := int64(0), 0
	var label []string
	for i := range all {
		s := &all[i]
		s.counts = s.counts[max(0, len(s.counts)-c.Slots):]
		longest = max(longest, len(s.counts))
		highest := int64(0)
		if len(s.counts) > 0 {
			highest = slices.Max(s.counts)
		}
		most = max(most, highest)
		label = append(label, s.Name+" at most "+perSecond(highest, step))
	}
	c.Label = of + " in the last " + reach.Words + ", per second: " + strings.Join(label, ", ")
	top := c.scale(float64(most) / step.Seconds())
	c.addTimes(until)
	for i, s := range all {
		points := c.points(s.counts, top*step.Seconds())
		if i == 0 && len(s.counts) > 1 {
			c.Area = fmt.Sprintf("%s,100 %s %s,100", c.x(len(s.counts)-1), points, c.x(0))
		}
		if i == 0 || slices.ContainsFunc(s.counts, func(n int64) bool { return n > 0 }) {
			c.Lines = append(c.Lines, line{s.Class, points})
		}
	}
	for before := range longest { // steps before the last one
		row := chartRow{Start: until.Add(-time.Duration(before+1) * step)}
		for _, s := range all {
			n := int64(0)
			if before < len(s.counts) {
				n = s.counts[len(s.counts)-1-before]
			}
			row.Cells = append(row.Cells, perSecond(n, step))
		}
		c.Rows = append(c.Rows, row)
	}
	return c
}

// scale sets the values at the left: 0 and up to three round numbers above it, of which the last one is returned.
func (c *chart) scale(most float64) float64 {
	if most <= 0 {
		most = 1
	}
	digits := math.Floor(math.Log10(most / 3))
	each := math.Pow(10, digits)
	for _, round := range []float64{1, 2, 5, 10} {
		if round*each >= most/3 {
			each *= round
			break
		}
	}
	steps := int(math.Ceil(most/each - 1e-9))
	for i := steps; i >= 0; i-- {
		value := strconv.FormatFloat(float64(i)*each, 'f', int(max(0, -digits)), 64)
		if strings.Contains(value, ".") {
			value = strings.TrimRight(strings.TrimRight(value, "0"), ".")
		} else {
			value = numbers.Count(value)
		}
		c.Values = append(c.Values, value)
		c.Grid = append(c.Grid, number(100*float64(steps-i)/float64(steps)))
	}
	return float64(steps) * each
}

// addTimes sets the times below, which are whole minutes or hours.
func (c *chart) addTimes(until time.Time) {
	from := until.Add(-c.Reach.long)
	for at := from.Truncate(c.Reach.tick).Add(c.Reach.tick); !at.After(until); at = at.Add(c.Reach.tick) {
		c.Times = append(c.Times, tick{number(100 * at.Sub(from).Seconds() / c.Reach.long.Seconds()), at.UTC().Format("15:04")})
	}
}

// mark marks the steps in which a thing was so. The last one ends where the chart does.
func (c *chart) mark(steps []bool) {
	for i := 0; i < len(steps); i++ {
		if !steps[i] {
			continue
		}
		from := i
		for i+1 < len(steps) && steps[i+1] {
			i++
		}
		c.Bands = append(c.Bands, band{number(float64(c.Slots - len(steps) + from)), number(float64(i - from + 1))})
	}
}

func (c *chart) points(counts []int64, top float64) string {
	var points []string
	for i, n := range counts {
		if i > 0 && i < len(counts)-1 && counts[i-1] == n && counts[i+1] == n {
			continue // in a straight line
		}
		points = append(points, c.x(len(counts)-1-i)+","+number(100-100*float64(n)/top))
	}
	return strings.Join(points, " ")
}

// x is the middle of the step with so many after it.
func (c *chart) x(after int) string { return number(float64(c.Slots-after) - 0.5) }

// Last is the step at the right, which the legend shows at first.
func (c *chart) Last() *chartRow {
	if len(c.Rows) == 0 {
		return nil
	}
	return &c.Rows[0]
}

// Newest is the index of that step, where the oldest one is 0.
func (c *chart) Newest() int { return max(0, len(c.Rows)-1) }

func number(x float64) string {
	text := strconv.FormatFloat(x, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}

// perSecond writes a count of a step per second, also one that is far below 1.
func perSecond(n int64, step time.Duration) string {
	x := float64(n) / step.Seconds()
	if 0 < x && x < 0.1 {
		return strconv.FormatFloat(x, 'g', 1, 64)
	}
	return rate(x)
}

// Chart draws the requests of the page: those of a policy, or of all together. It is nil if no history is kept.
func (p *page) Chart() *chart {
	switch v := p.Data.(type) {
	case *facts:
		return p.chartOf("chart", "Requests", v.whose(), v.History, seriesOf)
	case *topView:
		if v.Of != nil {
			return p.chartOf("chart", "Policy "+v.Policy, v.Facts.whose(), v.Of.History, seriesOf)
		}
	}
	return nil
}

// Calls draws the calls of Redis by the replica that answers, and marks when it was unavailable.
func (p *page) Calls() *chart {
	f := p.Data.(*facts)
	var away []bool
	c := p.chartOf("calls", "Calls of Redis", "the replica that answers", f.calls, func(h *fleet.History) []series {
		for _, n := range h.Refused {
			away = append(away, n > 0)
		}
		return []series{{"allowed", "calls", h.Allowed}, {"denied", "failed", h.Denied}}
	})
	if c != nil {
		c.mark(away)
	}
	return c
}

// whose says whose requests the page is about.
func (f *facts) whose() string {
	switch {
	case f.Shown != "":
		return "replica " + f.Shown
	case len(f.Replicas) == 1:
		return "this replica"
	}
	return "all replicas"
}

// chartOf draws a history as far back as the request asks for.
func (p *page) chartOf(id, of, whose string, kept fleet.Histories, lines func(*fleet.History) []series) *chart {
	all := []*fleet.History{kept.TenMinutes, kept.Hour, kept.SixHours} // by reaches
	drawn := 0
	for i, r := range reaches {
		if all[i] != nil && r.Name == p.query.Get("range") {
			drawn = i
		}
	}
	h := all[drawn]
	if h == nil {
		return nil
	}
	c := newChart(id, of, reaches[drawn], time.Duration(h.Seconds)*time.Second, h.End, lines(h)...)
	c.Whose, c.Without = whose, h.Without
	for i, r := range reaches {
		if all[i] != nil && i != drawn {
			query := maps.Clone(p.query)
			query.Set("range", r.Name)
			c.Others = append(c.Others, link{r.Words, "?" + query.Encode()})
		}
	}
	return c
}

// seriesOf returns the lines of a history: those that most have, and others if they count something.
func seriesOf(h *fleet.History) []series {
	steps := max(len(h.Allowed), len(h.Denied), len(h.WouldDeny), len(h.Refused))
	all := []series{{"allowed", "allowed", h.Allowed}, {"denied", "denied", h.Denied}, {"would", "would be denied", h.WouldDeny}, {"refused", "refused without the store", h.Refused}}
	for i := range all[:2] {
		if all[i].counts == nil {
			all[i].counts = make([]int64, steps)
		}
	}
	return slices.DeleteFunc(all, func(s series) bool {
		return s.Class != "allowed" && s.Class != "denied" && !slices.ContainsFunc(s.counts, func(n int64) bool { return n > 0 })
	})
}
