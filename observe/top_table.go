package observe

import (
	"hash/maphash"
	"sync"
	"time"
)

// A topTable has the counts of a policy.
type topTable struct {
	mu    sync.Mutex
	step  int64
	steps [steps + 1]topStep // that of number n is at n modulo len
}

// A topStep has the counts of one step of the window. Its summaries are made when they are needed.
type topStep struct {
	number    int64
	summaries [kinds]*summary
}

const (
	ofRequests = iota
	ofDenials
	kinds
)

func (table *topTable) add(t *Top, number int64, key string, denied bool) {
	hash := maphash.String(t.seed, key)
	kept, whole := t.keep(key)
	table.mu.Lock()
	defer table.mu.Unlock()
	step := table.at(number)
	step.summary(ofRequests).add(hash, kept, whole, denied)
	if denied {
		step.summary(ofDenials).add(hash, kept, whole, true)
	}
}

// at returns the step to count in at the time of a number.
func (table *topTable) at(number int64) *topStep {
	table.step = table.latest(number)
	step := &table.steps[table.step%int64(len(table.steps))]
	if step.number != table.step {
		step.number = table.step
		for _, s := range step.summaries {
			if s != nil {
				s.reset()
			}
		}
	}
	return step
}

// latest returns number, or that of the latest step if the clock was set back by less than a window.
func (table *topTable) latest(number int64) int64 {
	if back := table.step - number; back > 0 && back <= steps {
		return table.step
	}
	return number
}

func (step *topStep) summary(kind int) *summary {
	s := step.summaries[kind]
	if s == nil {
		s = new(summary)
		step.summaries[kind] = s
	}
	return s
}

// A topCopy is a copy of the summaries of a policy in the window.
type topCopy struct {
	since     time.Time
	summaries [kinds][]summary
}

func (t *Top) copy(policy string, kinds ...int) topCopy {
	number := t.step()
	var c topCopy
	if table := (*t.tables.Load())[policy]; table != nil {
		number = table.copyTo(&c.summaries, number, kinds)
	}
	c.since = t.stepBegan(max(0, number-steps))
	return c
}

// copyTo copies the summaries of the window that ends with the step of a number. It returns the number of the step with
// which it does end.
func (table *topTable) copyTo(to *[kinds][]summary, number int64, kinds []int) int64 {
	size := 0
	table.each(number, kinds, func(_ int, s *summary) { size += s.keySize() })
	for _, kind := range kinds { // not under the lock, for which requests wait
		to[kind] = make([]summary, 0, len(table.steps))
	}
	texts := make([]byte, 0, size)
	return table.each(number, kinds, func(kind int, s *summary) {
		to[kind] = append(to[kind], summary{})
		texts = s.copyTo(&to[kind][len(to[kind])-1], texts)
	})
}

func (table *topTable) each(number int64, kinds []int, do func(kind int, s *summary)) int64 {
	table.mu.Lock()
	defer table.mu.Unlock()
	number = table.latest(number)
	for i := range table.steps {
		step := &table.steps[i]
		for _, kind := range kinds {
			if s := step.summaries[kind]; s != nil && s.used > 0 && step.number <= number && step.number >= number-steps {
				do(kind, s)
			}
		}
	}
	return number
}
