package simulate

import (
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
)

// A timeline counts requests and denials of policies in spans of one length. The length grows with the time of the log, so
// that there are at most report.MaxSpans.
type timeline struct {
	step            int64 // microseconds
	spans           map[spanOf]*report.Span
	lowest, highest int64 // the numbers of the first and the last span
}

type spanOf struct {
	policy int
	number int64
}

// lengths are the lengths of spans up to a day. Each is a multiple of the one before. Longer ones double.
var lengths = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

func newTimeline() timeline {
	return timeline{step: lengths[0].Microseconds(), spans: make(map[spanOf]*report.Span), highest: -1}
}

func (t *timeline) count(policy int, now int64, denied bool) {
	if len(t.spans) == 0 {
		t.lowest, t.highest = now/t.step, now/t.step
	}
	for max(t.highest, now/t.step)-min(t.lowest, now/t.step) >= report.MaxSpans {
		t.widen()
	}
	number := now / t.step
	t.lowest, t.highest = min(t.lowest, number), max(t.highest, number)
	s := t.span(policy, number)
	s.Requests++
	if denied {
		s.Denied++
	}
}

// span returns the span with a number, to be counted in.
func (t *timeline) span(policy int, number int64) *report.Span {
	at := spanOf{policy, number}
	if t.spans[at] == nil {
		t.spans[at] = &report.Span{From: timeOf(number * t.step)}
	}
	return t.spans[at]
}

func (t *timeline) widen() {
	narrow, old := t.spans, t.step
	t.step *= 2
	if i := slices.Index(lengths, time.Duration(old)*time.Microsecond); i >= 0 && i+1 < len(lengths) {
		t.step = lengths[i+1].Microseconds()
	}
	t.spans = make(map[spanOf]*report.Span)
	for at, counts := range narrow {
		s := t.span(at.policy, at.number*old/t.step)
		s.Requests += counts.Requests
		s.Denied += counts.Denied
	}
	t.lowest, t.highest = t.lowest*old/t.step, t.highest*old/t.step
}

// of returns the spans of a policy without gaps.
func (t *timeline) of(policy int) (spans []report.Span) {
	for number := t.lowest; number <= t.highest; number++ {
		spans = append(spans, *t.span(policy, number))
	}
	return spans
}
