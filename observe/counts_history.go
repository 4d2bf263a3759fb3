package observe

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// historyStep is the length of the shortest steps of a history.
const historyStep = 5 * time.Second

// A span is how far a history goes back: so many steps, each as long as each of historyStep.
type span struct{ steps, each int64 }

// spans are those of PolicyCounts.History, Hour and SixHours. The longest step is a multiple of all others.
var spans = [...]span{{120, 1}, {60, 12}, {60, 72}}

// longestStep is the length of the steps of the last span.
const longestStep = 6 * time.Minute

// A history divides time into steps. At the first decision of a step it notes the counts that were reached: the
// difference to those of the step before came in between.
type history struct {
	clock func() time.Time // nil: see now
	begin time.Time
	after time.Duration // how long the first of the longest steps had lasted at begin, so that steps begin at whole multiples

	step atomic.Int64 // the current one of the shortest
	mu   sync.Mutex   // held to move to another step, and for policyCounts.past
}

// A stepTally has the decisions of a policy by result: allowed, denied, wouldDeny and refused.
type stepTally [notCharged]int64

// past has the decisions of a policy in the steps of a span before the current one.
type past struct {
	ring  []stepTally // by the number of the step; nil: all 0
	total stepTally   // of all steps before the current one
}

func newHistory(clock func() time.Time) *history {
	h := &history{clock: clock}
	h.begin = h.now(context.Background())
	h.after = h.begin.Sub(h.begin.Truncate(longestStep))
	h.step.Store(h.stepAt(h.begin))
	return h
}

// now returns the time of the decision that ctx has. To read the clock would take longer than all else that Counts does.
func (h *history) now(ctx context.Context) time.Time {
	if h.clock != nil {
		return h.clock()
	}
	if d, ok := ratelimit.FromContext(ctx); ok && !d.At.IsZero() {
		return d.At
	}
	return time.Now()
}

// stepAt returns the number of the step at now.
func (h *history) stepAt(now time.Time) int64 {
	return int64((now.Sub(h.begin) + h.after) / historyStep)
}

// startOf returns when a step starts.
func (h *history) startOf(step int64) time.Time {
	return h.begin.Add(time.Duration(step)*historyStep - h.after).Round(0)
}

// proceed moves to the current step. If another goroutine does it, proceed does not wait.
func (h *history) proceed(ctx context.Context, c *Counts) {
	step := h.stepAt(h.now(ctx))
	if step > h.step.Load() && h.mu.TryLock() {
		h.moveTo(step, c)
		h.mu.Unlock()
	}
}

// moveTo ends the current step, and those up to the given one. The caller holds mu. A clock that goes back moves nothing.
func (h *history) moveTo(step int64, c *Counts) {
	last := h.step.Load()
	if step <= last {
		return
	}
	for _, p := range c.policies.all() {
		total := p.total()
		for i, s := range spans {
			if last/s.each < step/s.each {
				p.past[i].end(last/s.each, step/s.each, s.steps, total)
			}
		}
	}
	h.step.Store(step)
}

// end ends the steps from last to before next, of which so many are kept. All decisions since were in the first of them.
func (p *past) end(last, next, kept int64, total stepTally) {
	if p.ring == nil {
		p.ring = make([]stepTally, kept)
	}
	p.ring[last%kept] = total.minus(p.total)
	p.total = total
	for step := last + 1; step <= min(next-1, last+kept); step++ {
		p.ring[step%kept] = stepTally{}
	}
}

func (t stepTally) minus(before stepTally) stepTally {
	for i, n := range before {
		t[i] -= n
	}
	return t
}

// total returns the decisions of p on all routes so far.
func (p *policyCounts) total() (total stepTally) {
	for _, r := range p.routes.all() {
		for n := range r.stripes {
			for i := range total {
				total[i] += r.stripes[n].by[i].Load()
			}
		}
	}
	return total
}

// steps returns the steps of p in a span up to the current one, oldest first. total is p.total(). The caller holds h.mu.
func (h *history) steps(p *policyCounts, i int, total stepTally) []Step {
	span, past := spans[i], &p.past[i]
	current := h.step.Load() / span.each
	steps := make([]Step, span.steps)
	for i := range steps {
		step := current - span.steps + 1 + int64(i)
		var counts stepTally
		if step == current {
			counts = total.minus(past.total)
		} else if step >= 0 && past.ring != nil {
			counts = past.ring[step%span.steps]
		}
		steps[i] = Step{h.startOf(step * span.each), counts[allowed], counts[denied], counts[wouldDeny], counts[refused]}
	}
	return steps
}
