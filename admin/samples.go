package admin

import (
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// samples keep the history of requests, whatever their policies, and of calls of the store. Counts have it only of each
// policy.
type samples struct {
	mu    sync.Mutex
	last  sampled
	spans [3]sampled
	calls [3]sampled // their counts are those of callCounts
	away  int64      // how often the store was unavailable
}

// A sampled is the last samples, the oldest first. Each is the first one after the beginning of a step.
type sampled []sample

// A sample is how many requests there were until a time.
type sample struct {
	at     time.Time
	counts fleet.Counts
}

// The lengths of the steps of fleet.Histories.
var spanSteps = [3]time.Duration{10 * time.Second, time.Minute, 6 * time.Minute}

// take takes a sample.
func (s *samples) take(counted observe.Snapshot, stats store.Stats, at time.Time) {
	now := sample{at: at.Round(0)}
	for _, d := range counted.Decisions {
		now.counts.Allowed -= d.Inner // a request counts once, however many limiters decide about it
		switch d.Outcome {
		case "allowed":
			now.counts.Allowed += d.Count
		case "failed_open":
			now.counts.Allowed += d.Count
			now.counts.Degraded += d.Count
		case "denied":
			now.counts.Denied += d.Count
		case "failed_closed":
			now.counts.Refused += d.Count
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.last); n > 0 { // a request that an inner limiter denies had been allowed
		now.counts.Allowed = max(now.counts.Allowed, s.last[n-1].counts.Allowed)
	}
	s.last.add(now, 0, int(fleet.LastFor/fleet.Every)+1)
	calls := sample{now.at, s.callCounts(stats)}
	for i, step := range spanSteps {
		s.spans[i].add(now, step, fleet.HistorySteps+1)
		s.calls[i].add(calls, step, fleet.HistorySteps+1)
	}
}

// callCounts returns the calls of Redis as Allowed, those that failed as Denied, and as Refused how often a stand-in decided
// when a sample was taken.
func (s *samples) callCounts(stats store.Stats) (c fleet.Counts) {
	if r := stats.Redis; r != nil {
		c.Allowed, c.Denied = r.Calls, sum(r.Errors)
	}
	if f := stats.Fallback; f != nil && f.Away {
		s.away++
	}
	c.Refused = s.away
	return c
}

// add adds a sample if a step has begun since the last one. If the clock was set back, it begins anew.
func (s *sampled) add(now sample, step time.Duration, most int) {
	if n := len(*s); n > 0 {
		switch last := (*s)[n-1].at; {
		case now.at.Before(last):
			*s = nil
		case !now.at.Truncate(step).After(last):
			return
		}
	}
	*s = append(*s, now)
	if len(*s) > most {
		*s = (*s)[1:]
	}
}

// fill adds the requests to a snapshot.
func (s *samples) fill(to *fleet.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.last); n > 1 {
		to.Last = s.last[n-1].counts.Minus(s.last[0].counts)
	}
	to.History = histories(&s.spans)
}

// ofCalls returns the history of calls, as callCounts has it.
func (s *samples) ofCalls() fleet.Histories {
	s.mu.Lock()
	defer s.mu.Unlock()
	return histories(&s.calls)
}

func histories(spans *[3]sampled) fleet.Histories {
	return fleet.Histories{TenMinutes: spans[0].history(spanSteps[0]), Hour: spans[1].history(spanSteps[1]), SixHours: spans[2].history(spanSteps[2])}
}

// history returns the steps between samples, nil if there is none yet. A step without a sample, because this process did not
// run, has no requests.
func (s sampled) history(length time.Duration) *fleet.History {
	if len(s) < 2 {
		return nil
	}
	h := fleet.NewHistory(s[len(s)-1].at, length)
	for i := range s[1:] {
		h.Add(s[i].at, s[i+1].counts.Minus(s[i].counts))
	}
	return h
}
