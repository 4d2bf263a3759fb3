package redisstore

import "sync"

// Slot is slot.
var Slot = slot

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

// ForgetCalls has no call reused whose channel is that of a bubble, or that of no bubble.
func ForgetCalls() { calls = sync.Pool{New: calls.New} }
