package admin

import (
	"sync"
	"time"
	"weak"

	"github.com/go-tokenbucket/ratelimit"
)

const (
	sampleEvery = 5 * time.Second
	maxSamples  = 121 // of ten minutes, and the one before
)

// samples keep what the store has counted in the last ten minutes, because its stats are only totals. A timer takes
// them, also while nobody looks: whoever looks after an incident sees it. The timer ends when the handler is no longer
// used.
type samples struct {
	mu    sync.Mutex
	kept  [maxSamples]sample
	taken int
}

// A sample is what the store had counted at a time.
type sample struct {
	at            time.Time
	calls, failed int64
	away          bool
}

// storeHistory is the last ten minutes of the store in steps, oldest first.
type storeHistory struct {
	Step   seconds   `json:"step_seconds"`
	Until  time.Time `json:"until"`
	Calls  []int64   `json:"calls"`
	Failed []int64   `json:"failed"`
	Away   []bool    `json:"away"`
}

// sampleStore takes samples of l until the result is no longer used.
func sampleStore(l *ratelimit.Limiter) *samples {
	s := new(samples)
	s.take(l)
	sampleNext(weak.Make(s), l)
	return s
}

func sampleNext(w weak.Pointer[samples], l *ratelimit.Limiter) {
	time.AfterFunc(sampleEvery, func() {
		if s := w.Value(); s != nil {
			s.take(l)
			sampleNext(w, l)
		}
	})
}

func (s *samples) take(l *ratelimit.Limiter) {
	stats := l.Stats()
	now := sample{at: time.Now()}
	if r := stats.Redis; r != nil {
		now.calls, now.failed = r.Calls, sum(r.Errors)
	}
	if f := stats.Fallback; f != nil {
		now.away = f.Away
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[s.taken%maxSamples] = now
	s.taken++
}

// history returns the steps between samples, or nil if there is none yet.
func (s *samples) history() *storeHistory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken < 2 {
		return nil
	}
	h := &storeHistory{Step: seconds(sampleEvery)}
	for i := max(0, s.taken-maxSamples) + 1; i < s.taken; i++ {
		before, now := s.kept[(i-1)%maxSamples], s.kept[i%maxSamples]
		h.Calls = append(h.Calls, max(0, now.calls-before.calls))
		h.Failed = append(h.Failed, max(0, now.failed-before.failed))
		h.Away = append(h.Away, before.away || now.away)
		h.Until = now.at.UTC()
	}
	return h
}
