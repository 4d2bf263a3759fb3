package observe

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// The history of a policy has this many steps, of this length.
const (
	historySteps = 120
	historyStep  = 5 * time.Second
)

// A history divides time into steps. At the first decision of a step it notes the counts that were reached: the
// difference to those of the step before came in between.
type history struct {
	clock func() time.Time // nil: see now
	begin time.Time
	after time.Duration // how long the first step had lasted at begin, so that steps begin at whole multiples

	step atomic.Int64 // the current one
	mu   sync.Mutex   // held to move to another step, and for policyCounts.past
}

// past has the decisions of a policy in the steps before the current one.
type past struct {
	ring  [historySteps][3]int64 // by the number of the step; allowed, denied, wouldDeny
	total [3]int64               // of all steps before the current one
}

func newHistory(clock func() time.Time) *history {
	h := &history{clock: clock}
	h.begin = h.now(context.Background())
	h.after = h.begin.Sub(h.begin.Truncate(historyStep))
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
		p.past.end(last, step, p.total())
	}
	h.step.Store(step)
}

// end ends the steps from last to before next. All decisions since were in the first of them.
func (p *past) end(last, next int64, total [3]int64) {
	for i := range total {
		p.ring[last%historySteps][i] = total[i] - p.total[i]
	}
	p.total = total
	for step := last + 1; step <= min(next-1, last+historySteps); step++ {
		p.ring[step%historySteps] = [3]int64{}
	}
}

// total returns the decisions of p on all routes so far.
func (p *policyCounts) total() (total [3]int64) {
	for _, r := range p.routes.all() {
		for n := range r.stripes {
			for i := range total {
				total[i] += r.stripes[n].by[i].Load()
			}
		}
	}
	return total
}

// steps returns the steps of p up to the current one, oldest first. The caller holds h.mu.
func (h *history) steps(p *policyCounts) []Step {
	current := h.step.Load()
	steps := make([]Step, historySteps)
	for i := range steps {
		step := current - historySteps + 1 + int64(i)
		var counts [3]int64
		if step == current {
			for n, total := range p.total() {
				counts[n] = total - p.past.total[n]
			}
		} else if step >= 0 {
			counts = p.past.ring[step%historySteps]
		}
		steps[i] = Step{h.startOf(step), counts[allowed], counts[denied], counts[wouldDeny]}
	}
	return steps
}
