package report

import (
	"slices"
	"time"
)

// spans returns p.When in at most so many parts, without gaps, and the length of a part. The parts begin at round times.
func (p *Policy) spans(most int) ([]Span, time.Duration) {
	if len(p.When) == 0 {
		return nil, 0
	}
	when := slices.SortedFunc(slices.Values(p.When), func(a, b Span) int { return a.From.Compare(b.From) })
	first, last := when[0].From, when[len(when)-1].From
	length := p.step()
	if length == 0 || last.Sub(first) > 36500*day {
		return when[:1], 0
	}
	_, zone := first.Zone()
	offset := time.Duration(zone) * time.Second
	whole := last.Sub(first) + length
	for _, step := range slices.Concat(round, []time.Duration{(whole/time.Duration(most-1)/length + 1) * length}) {
		if step%length != 0 || whole/step > time.Duration(most) {
			continue
		}
		start := first.Add(offset).Truncate(step).Add(-offset)
		n := int(last.Sub(start)/step) + 1
		if n > most {
			continue
		}
		spans := make([]Span, n)
		for i := range spans {
			spans[i].From = start.Add(time.Duration(i) * step)
		}
		for _, s := range when {
			if i := int(s.From.Sub(start) / step); i >= 0 && i < n {
				spans[i].Requests += s.Requests
				spans[i].Denied += s.Denied
			}
		}
		return spans, step
	}
	return nil, 0
}

// round are lengths of time for axes.
var round = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 7 * day, 28 * day, 364 * day, 3640 * day,
}

const day = 24 * time.Hour

// step returns the length of the parts of p.When, or 0 if there is only one.
func (p *Policy) step() (length time.Duration) {
	for i := range p.When[:max(1, len(p.When))-1] {
		if d := p.When[i+1].From.Sub(p.When[i].From).Abs(); d > 0 && (length == 0 || d < length) {
			length = d
		}
	}
	return length
}

// peak returns the span with the most denied requests.
func peak(spans []Span) (most Span) {
	for _, s := range spans {
		if s.Denied > most.Denied {
			most = s
		}
	}
	return most
}
