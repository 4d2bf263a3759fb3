package redisstore

import (
	"sync/atomic"
	"time"
)

// Slot is slot.
var Slot = slot

// Skew has s believe that Redis's clock is ahead of this process's by d, as if this process's clock were wrong by that.
func Skew(s *Store, d time.Duration) { s.engine.calendar.ahead.Store(d.Microseconds()) }

// ForgetRefusals has s take the next call over several slots at once.
func ForgetRefusals(s *Store) {
	for i := range s.engine.caution.until {
		s.engine.caution.until[i].Store(0)
	}
}

// ParseBucket is parseBucket.
var ParseBucket = parseBucket

// Flights returns how many flights of the only lane of s count, and how many were handed over.
func Flights(s *Store) (flights, overdue int) {
	l := &s.engine.routes.only
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flights, l.overdue
}

// Closed reports whether s refuses new calls.
func Closed(s *Store) bool { return s.engine.closed.Load() }

// OnlyTake has s send all calls by take.lua, those by themselves too.
func OnlyTake(s *Store) *Store {
	s.engine.choose = func([]entry) script { return take }
	return s
}

// EitherScript has s send every other call by itself by take.lua.
func EitherScript(s *Store) *Store {
	var n atomic.Int64
	s.engine.choose = func(entries []entry) script {
		if n.Add(1)%2 == 0 {
			return take
		}
		return scriptOf(entries)
	}
	return s
}

// Sender returns what runs the commands of s.
func Sender(s *Store) Client { return s.engine.sender }

// Crossings returns how many masters s has found to take keys of several slots in one script, and how many not to.
func Crossings(s *Store) (yes, no int) {
	s.engine.routes.byAddr.Range(func(_, l any) bool {
		switch l.(*lane).crossing.state.Load() {
		case crossingYes:
			yes++
		case crossingNo:
			no++
		}
		return true
	})
	return yes, no
}

// AskAgain has s ask the masters that it does not know without waiting for the time to do so.
func AskAgain(s *Store) {
	s.engine.routes.byAddr.Range(func(_, l any) bool {
		l.(*lane).crossing.nextQuestion.Store(1)
		return true
	})
}

// Clone has s hold what other holds, as if its process were a copy.
func Clone(s, other *Store) {
	a, b := &s.engine.holdings, &other.engine.holdings
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	a.holder, a.sequence = b.holder, b.sequence
	for of, h := range b.byName {
		copied := *h
		copied.index = -1
		a.byName[of] = &copied
		a.schedule(&copied, time.Now())
	}
	a.flush(time.Now())
}

// Holdings returns how many keys s knows slots of, how many slots it holds, and its name as their holder.
func Holdings(s *Store) (keys int, held int64, holder string) {
	h := &s.engine.holdings
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.byName {
		held += of.held
	}
	return len(h.byName), held, h.holder
}

// Assertions returns how many assertions wait in the only lane of s.
func Assertions(s *Store) int {
	l := s.engine.routes.only.asserting
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued
}
