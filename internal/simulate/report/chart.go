package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A chart is a picture with axes, in pixels. Its colors are those of its classes.
type chart struct {
	Class         string // for which widths of the page it is
	Label         string // for readers who do not see it
	Width, Height int
	Left, Right   string // of the area between the axes
	Top, Bottom   string
	XTicks        []tick
	YTicks        []tick
	XTitle        string
	XTitleAt      string
	Lines         []line
	Bars          []mark
	Own           *marker
}

type (
	tick struct{ At, Text, Anchor string }
	line struct {
		Class, Points string
		Marks         []mark
	}
	mark   struct{ X, Y, Width, Height, Title string }
	marker struct{ X, TextX, Anchor, Text string } // the limit of the policy
)

// A frame has the size of a picture, and the margins around the area between its axes.
type frame struct {
	class                    string
	width, height            float64
	left, right, top, bottom float64
}

// Each picture is drawn for some widths of the page, so that its texts have the same size everywhere.
var (
	narrow     = frame{"narrow", 290, 240, 46, 10, 22, 50}
	curveSizes = []frame{{"broad middle", 560, 330, 46, 14, 22, 50}, narrow}
	barSizes   = []frame{{"broad", 1120, 230, 46, 14, 14, 50}, {"middle", 560, 260, 46, 14, 14, 50}, narrow}
)

func (f frame) chart(label string) *chart {
	return &chart{
		Class: f.class, Label: label, Width: int(f.width), Height: int(f.height),
		Left: px(f.left), Right: px(f.width - f.right), Top: px(f.top), Bottom: px(f.height - f.bottom),
		XTitleAt: px((f.left + f.width - f.right) / 2),
	}
}

// x and y place a part of the axis, from 0 to 1.
func (f frame) x(part float64) float64 { return f.left + part*(f.width-f.left-f.right) }
func (f frame) y(part float64) float64 {
	return f.height - f.bottom - part*(f.height-f.top-f.bottom)
}

func px(x float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

// step returns a round step for an axis from 0 to most, with three to seven steps.
func step(most float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(most)))
	for _, round := range []float64{0.2, 0.5, 1} {
		if most > 2*round*ten && most <= 5.001*round*ten {
			return round * ten
		}
	}
	return 2 * ten
}

// units are those of rates.
var units = []struct {
	name    string
	seconds float64
}{{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}}

// unit returns that of the limit of the policy, or else the first in which its rate is at least 1.
func (p *Policy) unit() (name string, seconds float64) {
	rate, per := p.Curve[len(p.Curve)/2].PerSecond, 0.0
	if i := p.ownPoint(); i >= 0 {
		rate = p.Curve[i].PerSecond
		if limit, err := ratelimit.ParseLimit(p.Curve[i].Limit); err == nil {
			per = limit.Per.Seconds()
		}
	}
	for _, u := range units {
		if u.seconds == per {
			return u.name, u.seconds
		}
		if seconds*rate < 0.999 {
			name, seconds = u.name, u.seconds
		}
	}
	return name, seconds
}

func (p *Policy) ownPoint() int {
	return slices.IndexFunc(p.Curve, func(at Point) bool { return at.Own })
}

// curves draws the shares of requests and of clients that limits deny. There is no picture where no limit denies.
func (p *Policy) curves() (all []*chart) {
	requests, clients := p.alone()
	var most float64
	for _, at := range p.Curve {
		if !(at.PerSecond > 0) || math.IsInf(at.PerSecond, 0) {
			return nil
		}
		most = max(most, part(at.RequestsDenied, requests), part(at.ClientsDenied, clients))
	}
	if len(p.Curve) < 2 || most == 0 {
		return nil
	}
	points := slices.SortedFunc(slices.Values(p.Curve), func(a, b Point) int {
		if a.PerSecond < b.PerSecond {
			return -1
		}
		return 1
	})
	for _, f := range curveSizes {
		all = append(all, p.curve(f, points, most))
	}
	return all
}

func (p *Policy) curve(f frame, points []Point, most float64) *chart {
	unit, seconds := p.unit()
	requests, clients := p.alone()
	first, last := points[0], points[len(points)-1]
	c := f.chart(fmt.Sprintf("Shares of requests and of clients that are denied, by limit. %s; %s.", p.says(first), p.says(last)))
	c.XTitle = "rate per " + unit + ", the burst in proportion"

	low, high := math.Log(first.PerSecond*seconds), math.Log(last.PerSecond*seconds)
	room := (high - low) * 0.03
	low, high = low-room, high+room
	x := func(rate float64) float64 { return f.x((math.Log(rate) - low) / (high - low)) }

	by := step(100 * most)
	top := math.Min(100, by*math.Ceil(100*most/by-1e-9))
	y := func(n, all int64) float64 { return f.y(100 * part(n, all) / top) }
	for at := 0.0; at < top+by/2; at += by {
		c.YTicks = append(c.YTicks, tick{At: px(f.y(at / top)), Text: percent(at / 100)})
	}
	end := 0.0
	for ten := math.Floor(low / math.Ln10); ten <= high/math.Ln10; ten++ {
		for _, round := range []float64{1, 2, 5} {
			rate := round * math.Pow(10, ten)
			text := shortRate(rate)
			half := 3.5 * float64(len(text))
			if at := x(rate); math.Log(rate) >= low && math.Log(rate) <= high && at-half > end+6 && at+half < f.width {
				c.XTicks = append(c.XTicks, tick{At: px(at), Text: text})
				end = at + half
			}
		}
	}

	ofRequests, ofClients := line{Class: "requests"}, line{Class: "clients"}
	for _, at := range points {
		title := p.says(at)
		ofRequests.add(x(at.PerSecond*seconds), y(at.RequestsDenied, requests), title)
		ofClients.add(x(at.PerSecond*seconds), y(at.ClientsDenied, clients), title)
	}
	c.Lines = []line{ofRequests, ofClients}
	if i := p.ownPoint(); i >= 0 {
		at := x(p.Curve[i].PerSecond * seconds)
		c.Own = &marker{X: px(at), TextX: px(at + 6), Anchor: "start", Text: key(p.Curve[i].Limit, 30)}
		if at > f.x(0.7) {
			c.Own.TextX, c.Own.Anchor = px(at-6), "end"
		}
	}
	return c
}

// says is what a limit denies, in words.
func (p *Policy) says(at Point) string {
	requests, clients := p.alone()
	return fmt.Sprintf("%s: %s of requests, %s of clients", key(at.Limit, 40), share(at.RequestsDenied, requests), share(at.ClientsDenied, clients))
}

func (l *line) add(x, y float64, title string) {
	if l.Points != "" {
		l.Points += " "
	}
	l.Points += px(x) + "," + px(y)
	l.Marks = append(l.Marks, mark{X: px(x), Y: px(y), Title: title})
}

func shortRate(x float64) string {
	if x >= 1 {
		return count(int64(math.Round(x)))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// bars draws the denied requests over time.
func (p *Policy) bars(c clock, zone string) (all []*chart) {
	for _, f := range barSizes {
		spans, length := p.spans(int(f.width) / 6)
		most := peak(spans)
		if most.Denied == 0 || length == 0 {
			return nil
		}
		all = append(all, p.bar(f, c, zone, spans, length, most))
	}
	return all
}

func (p *Policy) bar(f frame, c clock, zone string, spans []Span, length time.Duration, most Span) *chart {
	pic := f.chart(fmt.Sprintf("Denied requests over time, in parts of %s. Most from %s: %s.", span(length.Seconds()), c.of(most.From, length), count(most.Denied)))
	pic.XTitle = "time, " + zone

	by := math.Max(1, step(float64(most.Denied)))
	top := by * math.Ceil(float64(most.Denied)/by)
	for at := 0.0; at < top+by/2; at += by {
		pic.YTicks = append(pic.YTicks, tick{At: px(f.y(at / top)), Text: brief(at)})
	}
	whole := time.Duration(len(spans)) * length
	begin := spans[0].From
	x := func(t time.Time) float64 { return f.x(float64(t.Sub(begin)) / float64(whole)) }
	gap := math.Min(2, (x(begin.Add(length))-f.left)/5)
	for _, s := range spans {
		if s.Denied == 0 {
			continue
		}
		y := f.y(float64(s.Denied) / top)
		y = math.Min(y, f.y(0)-1) // a denial always shows
		pic.Bars = append(pic.Bars, mark{
			X: px(x(s.From) + gap/2), Width: px(x(s.From.Add(length)) - x(s.From) - gap),
			Y: px(y), Height: px(f.y(0) - y),
			Title: fmt.Sprintf("%s: %s of %s denied", c.of(s.From, length), count(s.Denied), of(s.Requests, "request")),
		})
	}

	_, offset := begin.In(c.zone).Zone()
	zoned := time.Duration(offset) * time.Second
	layout, wide := "15:04", 34.0
	if c.days {
		layout, wide = "2 Jan 15:04", 72
	}
	for _, every := range round {
		if whole/every > time.Duration((f.width-f.left)/(wide+14)) {
			continue
		}
		if every >= day {
			layout = "2 Jan"
		} else if every < time.Minute {
			layout += ":05"
		}
		for at := begin.Add(zoned).Truncate(every).Add(-zoned); !at.After(begin.Add(whole)); at = at.Add(every) {
			if at.Before(begin) || x(at)+wide/2 > f.width {
				continue
			}
			pic.XTicks = append(pic.XTicks, tick{At: px(x(at)), Text: at.In(c.zone).Format(layout)})
		}
		break
	}
	return pic
}

// brief writes a number of requests in five letters at most.
func brief(n float64) string {
	switch {
	case n >= 1e6:
		return strconv.FormatFloat(n/1e6, 'g', 3, 64) + "M"
	case n >= 1e4:
		return strconv.FormatFloat(n/1e3, 'g', 3, 64) + "k"
	}
	return count(int64(n))
}
