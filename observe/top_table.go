package observe

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/distinct"
)

// A topTable has the counts of a policy.
type topTable struct {
	mu      sync.Mutex
	part    int64
	step    *topStep           // that of part
	within  int                // which part of the step it is
	steps   [steps + 1]topStep // that of number n is at n modulo len
	limited [2]limitedKeys     // that of part n is at n modulo len
}

// A topStep has the counts of one step of the window. Its summaries are made when they are needed.
type topStep struct {
	number    int64
	summaries [kinds]*summary
}

// limitedKeys are the keys that were denied in a part of a step, without denials by a Shadow.
type limitedKeys struct {
	part int64
	distinct.Sketch
}

const (
	ofRequests = iota
	ofDenials
	kinds
)

// add counts a request. It returns the tally of its key in the current part of the step.
func (table *topTable) add(t *Top, part int64, r *ratelimit.Result) tally {
	hash := maphash.String(t.seed, r.Key)
	kept, whole := t.keep(r.Key)
	table.mu.Lock()
	defer table.mu.Unlock()
	if part != table.part || table.step == nil {
		table.begin(part)
	}
	n := table.step.summary(ofRequests).add(table.within, hash, kept, whole, !r.Allowed)
	if !r.Allowed {
		table.step.summary(ofDenials).add(table.within, hash, kept, whole, true)
		if n.denied == 1 && !r.Shadow {
			table.limit(r.Key)
		}
	}
	return n
}

// begin begins a part of a step.
func (table *topTable) begin(part int64) {
	if part = table.latest(part); part < table.part { // the clock was set back by more than the window
		for i := range table.steps {
			table.steps[i].begin(unused)
		}
		table.limited = [len(table.limited)]limitedKeys{}
	}
	number := part / parts
	table.part, table.within = part, int(part%parts)
	table.step = &table.steps[number%int64(len(table.steps))]
	if table.step.number != number {
		table.step.begin(number)
	}
}

// latest returns part, or the latest one if the clock was set back by at most a window.
func (table *topTable) latest(part int64) int64 {
	if back := table.part - part; back > 0 && back <= steps*parts {
		return table.part
	}
	return part
}

// unused is the number of a step without counts.
const unused = -1

func (step *topStep) begin(number int64) {
	step.number = number
	for _, s := range step.summaries {
		if s != nil {
			s.reset()
		}
	}
}

func (step *topStep) summary(kind int) *summary {
	s := step.summaries[kind]
	if s == nil {
		s = new(summary)
		step.summaries[kind] = s
	}
	return s
}

// limit adds a key to those that were denied in the current part.
func (table *topTable) limit(key string) {
	in := &table.limited[table.part%int64(len(table.limited))]
	if in.part != table.part {
		*in = limitedKeys{part: table.part}
	}
	in.Add(distinct.Hash(key))
}

// limitedIn adds the keys that were denied in a part or in the one before to a sketch.
func (table *topTable) limitedIn(part int64, all *distinct.Sketch) {
	table.mu.Lock()
	defer table.mu.Unlock()
	part = table.latest(part)
	for i := range table.limited {
		if in := &table.limited[i]; in.part == part || in.part == part-1 {
			all.Merge(&in.Sketch)
		}
	}
}

// A topCopy is a copy of the counts of a policy in the window.
type topCopy struct {
	top         *Top
	first, last int64 // the parts of the window
	steps       []topStep
}

func (t *Top) copy(policy string) *topCopy {
	c := &topCopy{top: t, last: t.part()}
	if table := (*t.tables.Load())[policy]; table != nil {
		table.copyTo(c)
	}
	c.first = max(0, c.last/parts-steps) * parts
	return c
}

// copyTo copies the counts of the window that ends with c.last, or with the latest part.
func (table *topTable) copyTo(c *topCopy) {
	size := 0
	table.each(c.last, func(s *summary, _ int64, _ int) { size += s.keySize() })
	summaries := make([]summary, len(table.steps)*kinds) // not under the lock, for which requests wait
	c.steps = make([]topStep, 0, len(table.steps))
	texts := make([]byte, 0, size)
	c.last = table.each(c.last, func(s *summary, number int64, kind int) {
		if n := len(c.steps); n == 0 || c.steps[n-1].number != number {
			c.steps = append(c.steps, topStep{number: number})
		}
		copied := &summaries[0]
		summaries = summaries[1:]
		texts = s.copyTo(copied, texts)
		c.steps[len(c.steps)-1].summaries[kind] = copied
	})
}

// each calls do with the summaries of the window that ends with a part, or with the latest one. It returns the last part.
func (table *topTable) each(part int64, do func(s *summary, number int64, kind int)) int64 {
	table.mu.Lock()
	defer table.mu.Unlock()
	part = table.latest(part)
	last := part / parts
	for i := range table.steps {
		step := &table.steps[i]
		for kind, s := range step.summaries {
			if s != nil && s.used > 0 && step.number <= last && step.number >= last-steps {
				do(s, step.number, kind)
			}
		}
	}
	return part
}

// summaries returns the summaries of a kind.
func (c *topCopy) summaries(kind int) (of []*summary) {
	for i := range c.steps {
		if s := c.steps[i].summaries[kind]; s != nil {
			of = append(of, s)
		}
	}
	return of
}

// history returns the requests of a key by the parts of the window.
func (c *topCopy) history(hash uint64) []KeyStep {
	history := make([]KeyStep, c.last-c.first+1)
	for i := range history {
		history[i].Start = c.top.partBegan(c.first + int64(i))
	}
	for i := range c.steps {
		step := &c.steps[i]
		for _, s := range step.summaries {
			if s == nil {
				continue
			}
			counter := s.find(hash)
			if counter == noCounter {
				continue
			}
			for j, n := range s.parts[counter] {
				if at := step.number*parts + int64(j) - c.first; at < int64(len(history)) {
					in := &history[at] // each summary may have missed some
					in.Requests, in.Denied = max(in.Requests, int64(n.requests)), max(in.Denied, int64(n.denied))
				}
			}
		}
	}
	return history
}

// began is when the window began.
func (c *topCopy) began() time.Time { return c.top.partBegan(c.first) }
