package simulate

import (
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
)

// A timeline counts requests and denials of all policies in spans of one length. The length grows with the time of the
// log, so that there are at most maxSpans.
type timeline struct {
	policies int
	step     int64 // microseconds
	spans    map[int64][]spanCount
	lowest   int64 // number of the first span
	highest  int64

	lastSpan   int64 // the span of the last request, which is often that of the next one
	lastCounts []spanCount
}

type spanCount struct{ requests, denied int64 }

const maxSpans = 300

// lengths are the lengths of spans up to a day. Each is a multiple of the one before. Longer ones double.
var lengths = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
}

func newTimeline(policies int) *timeline {
	return &timeline{policies: policies, step: lengths[0].Microseconds(), spans: make(map[int64][]spanCount), lastSpan: -1}
}

func (t *timeline) count(policy int, now int64, denied bool) {
	if span := now / t.step; span != t.lastSpan {
		t.find(now)
	}
	c := &t.lastCounts[policy]
	c.requests++
	if denied {
		c.denied++
	}
}

// find makes the span of now the last one.
func (t *timeline) find(now int64) {
	span := now / t.step
	if len(t.spans) == 0 {
		t.lowest, t.highest = span, span
	}
	for max(t.highest, span)-min(t.lowest, span) >= maxSpans {
		t.widen()
		span = now / t.step
	}
	t.lowest, t.highest = min(t.lowest, span), max(t.highest, span)
	if t.spans[span] == nil {
		t.spans[span] = make([]spanCount, t.policies)
	}
	t.lastSpan, t.lastCounts = span, t.spans[span]
}

func (t *timeline) widen() {
	step := 2 * t.step
	if i := slices.Index(lengths, time.Duration(t.step)*time.Microsecond); i >= 0 && i+1 < len(lengths) {
		step = lengths[i+1].Microseconds()
	}
	wide := make(map[int64][]spanCount)
	for span, counts := range t.spans {
		at := span * t.step / step
		if wide[at] == nil {
			wide[at] = make([]spanCount, t.policies)
		}
		for i, c := range counts {
			wide[at][i].requests += c.requests
			wide[at][i].denied += c.denied
		}
	}
	t.lowest, t.highest = t.lowest*t.step/step, t.highest*t.step/step
	t.step, t.spans = step, wide
}

// of returns the spans of a policy without gaps.
func (t *timeline) of(policy int) (spans []report.Span) {
	if len(t.spans) == 0 {
		return nil
	}
	for at := t.lowest; at <= t.highest; at++ {
		span := report.Span{From: timeOf(at * t.step)}
		if counts := t.spans[at]; counts != nil {
			span.Requests, span.Denied = counts[policy].requests, counts[policy].denied
		}
		spans = append(spans, span)
	}
	return spans
}
