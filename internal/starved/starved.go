// Package starved tells a process that lacks processor time from a server that does not answer.
//
// A timer overtakes the goroutines that are ready to run, the one among them that has the answer. So on a busy
// machine a deadline passes although the answer came in time, and it is noticed late where the whole process stood
// still.
package starved

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// busy is the part of the time that a call is given for which one goroutine waits to run on a machine whose
	// processors are busy. It is some microseconds on others.
	busy = 20

	// severe is the part that is too much, because a call takes several goroutines a few steps.
	severe = 4

	// memorable is a wait that is remembered, and lately for how long: load comes in waves.
	memorable = 25 * time.Millisecond
	lately    = time.Second
)

// remembered is when a wait was memorable, in Unix nanoseconds.
var remembered atomic.Int64

// A Wait is how much later a goroutine runs than it could.
type Wait time.Duration

// Since lets the goroutines run that are ready, and returns how long that takes after due: now, or when a timer was
// due that has just fired. What the others have brought about may be there when it returns.
func Since(due time.Time) Wait {
	runtime.Gosched()
	now := time.Now()
	wait := now.Sub(due)
	if wait >= memorable {
		remembered.Store(now.UnixNano())
	}
	return Wait(wait)
}

// Busy reports whether processor time may be what kept a call waiting that is given some time.
func (w Wait) Busy(given time.Duration) bool {
	if time.Duration(w) >= given/busy {
		return true
	}
	ago := time.Since(time.Unix(0, remembered.Load()))
	return 0 <= ago && ago < lately
}

// Severe reports whether processor time is what kept it waiting.
func (w Wait) Severe(given time.Duration) bool { return time.Duration(w) >= given/severe }
