package observe

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// quiet is the minimum time between two lines about the same subject.
	quiet = time.Minute

	maxLoggedKeys     = 1024
	maxLoggedPolicies = 64
)

// A subject is something that has its own lines.
type subject struct {
	kind   kindOfLine
	policy string // "": all of them
	key    uint64 // a hash, so that clients do not choose how much memory it takes; 0: all of them
}

type kindOfLine uint8

const (
	denial kindOfLine = iota
	shadowDenial
	noKey
)

// recentLines decides which lines are logged. The zero value is ready to use.
type recentLines struct {
	mu     sync.Mutex
	keys   map[subject]*lastLine
	others map[subject]*lastLine // those about all keys
	swept  time.Time
}

// A lastLine is the last line about a subject.
type lastLine struct {
	at    time.Time
	since int64 // how often there would have been another
}

// due reports whether to log a line about s now. It also returns the subject of the line, which may be a shared
// one, and how many lines were left out before.
func (t *recentLines) due(now time.Time, s subject) (as subject, since int64, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	as, last := t.find(now, s)
	if recently(now, last.at) {
		last.since++
		return as, 0, false
	}
	since = last.since
	*last = lastLine{at: now}
	return as, since, true
}

// recently reports whether then is less than quiet ago. If the clock was set back by more, it is not: otherwise
// nothing would be logged until the clock is there again.
func recently(now, then time.Time) bool { return now.Sub(then).Abs() < quiet }

func (t *recentLines) find(now time.Time, s subject) (subject, *lastLine) {
	if s.key == 0 {
		return t.other(s)
	}
	if last := t.keys[s]; last != nil {
		return s, last
	}
	if len(t.keys) >= maxLoggedKeys {
		t.sweep(now)
	}
	if len(t.keys) >= maxLoggedKeys {
		return t.other(s)
	}
	if t.keys == nil {
		t.keys = make(map[subject]*lastLine)
	}
	t.keys[s] = new(lastLine)
	return s, t.keys[s]
}

// other returns the line that s shares with other keys.
func (t *recentLines) other(s subject) (subject, *lastLine) {
	s.key = 0
	if t.others[s] == nil && len(t.others) >= maxLoggedPolicies {
		s.policy = ""
	}
	if t.others[s] == nil {
		if t.others == nil {
			t.others = make(map[subject]*lastLine)
		}
		t.others[s] = new(lastLine)
	}
	return s, t.others[s]
}

// sweep forgets old keys to make room for others. It looks at all of them, so it runs at most once a second in a
// flood.
func (t *recentLines) sweep(now time.Time) {
	if now.Sub(t.swept).Abs() < time.Second {
		return
	}
	t.swept = now
	for s, last := range t.keys {
		if recently(now, last.at) {
			continue
		}
		delete(t.keys, s)
		if last.since > 0 {
			_, other := t.other(s)
			other.since += last.since
		}
	}
}

// standInLines decides when to log lines about a stand-in for the store. The zero value is ready to use.
type standInLines struct {
	away atomic.Bool // the last line said so

	mu     sync.Mutex
	logged time.Time // the last line
	latest time.Time // of the decisions by a stand-in
	since  int64     // how many of them had no line
}

// concerns reports whether due must be called for a decision. It need not while the store decides.
func (s *standInLines) concerns(degraded bool) bool { return degraded || s.away.Load() }

// due records a decision, which a stand-in made if degraded. It reports whether to log a line now, and how many
// decisions by a stand-in had none before.
func (s *standInLines) due(now time.Time, degraded bool) (since int64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	away := s.away.Load()
	if degraded {
		s.latest = now
		if away || recently(now, s.logged) {
			s.since++
			return 0, false
		}
	} else if !away || recently(now, s.latest) {
		return 0, false
	}
	since = s.since
	s.logged, s.since = now, 0
	s.away.Store(degraded)
	return since, true
}
