package admin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A chart draws counts as lines. The colours are those of its classes: the page has no styles.
type chart struct {
	Label string // for those who do not see it
	Most  string // a second, at its top
	Area  string // below the first line
	Lines []line
	Bands []band
}

type line struct{ Class, Points string }

// A band marks a period, such as an outage.
type band struct{ X, Width string }

const (
	chartWidth, chartHeight = 240.0, 48.0
	chartSteps              = 119 // of ten minutes; fewer ones stand at the right
)

// A series is the counts of one line, oldest first.
type series struct {
	class, name string
	counts      []int64
}

func newChart(of string, step seconds, all ...series) *chart {
	perStep := time.Duration(step).Seconds()
	var most int64
	for _, s := range all {
		if len(s.counts) > 0 {
			most = max(most, slices.Max(s.counts))
		}
	}
	c := &chart{Most: rate(float64(most) / perStep)}
	label := []string{}
	for i, s := range all {
		points := pointsOf(s.counts, most)
		if i == 0 && len(s.counts) > 1 {
			c.Area = fmt.Sprintf("%s,%s %s %s,%s", x(len(s.counts)-1), number(chartHeight), points, x(0), number(chartHeight))
		}
		if i == 0 || slices.ContainsFunc(s.counts, func(n int64) bool { return n > 0 }) {
			c.Lines = append(c.Lines, line{s.class, points})
		}
		now, highest := int64(0), int64(0)
		if n := len(s.counts); n > 0 {
			now, highest = s.counts[n-1], slices.Max(s.counts)
		}
		label = append(label, fmt.Sprintf("%s %s, at most %s", s.name, rate(float64(now)/perStep), rate(float64(highest)/perStep)))
	}
	c.Label = of + " in the last ten minutes, per second: " + strings.Join(label, "; ")
	return c
}

// mark marks the steps in which a thing was so.
func (c *chart) mark(steps []bool) {
	width := chartWidth / chartSteps
	for i := 0; i < len(steps); i++ {
		if !steps[i] {
			continue
		}
		from := i
		for i+1 < len(steps) && steps[i+1] {
			i++
		}
		c.Bands = append(c.Bands, band{number(chartWidth - width*float64(len(steps)-from)), number(width * float64(i-from+1))})
	}
}

func pointsOf(counts []int64, most int64) string {
	var points []string
	for i, n := range counts {
		if i > 0 && i < len(counts)-1 && counts[i-1] == n && counts[i+1] == n {
			continue // in a straight line
		}
		y := chartHeight - 1
		if most > 0 {
			y -= (chartHeight - 2) * float64(n) / float64(most)
		}
		points = append(points, x(len(counts)-1-i)+","+number(y))
	}
	return strings.Join(points, " ")
}

// x returns the place of the step with so many after it.
func x(after int) string { return number(chartWidth - float64(after)*chartWidth/(chartSteps-1)) }

func number(x float64) string {
	text := strconv.FormatFloat(x, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}

// Chart draws the history of a policy.
func (p *policyCounts) Chart(policy string) *chart {
	h := p.History
	return newChart("Policy "+policy, h.Step, series{"allowed", "allowed", h.Allowed}, series{"denied", "denied", h.Denied}, series{"would", "would be denied", h.WouldDeny})
}
