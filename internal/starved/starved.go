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
	// A Wait is Busy from a part of the time that a call is given, and not below what the timers of an idle machine
	// may be late by. It is some microseconds on most.
	busyPart  = 20
	busyFloor = 5 * time.Millisecond

	// From a greater part it is Severe, because a call takes several goroutines a few steps.
	severePart  = 4
	severeFloor = 25 * time.Millisecond

	// lately is how long a Wait of severeFloor is remembered: load comes in waves.
	lately = time.Second
)

// remembered is when a Wait was last that long, in Unix nanoseconds, and longest the longest of those that followed
// each other.
var remembered, longest atomic.Int64

// A Wait is how much later a goroutine runs than it could.
type Wait time.Duration

// Since lets the goroutines run that are ready, and returns how long that takes after due: now, or when a timer was
// due that has just woken this goroutine. What the others have brought about may be there when it returns.
func Since(due time.Time) Wait {
	runtime.Gosched()
	now := time.Now()
	wait := now.Sub(due)
	if wait >= severeFloor {
		if Lately() == 0 {
			longest.Store(0)
		}
		for old := longest.Load(); int64(wait) > old && !longest.CompareAndSwap(old, int64(wait)); old = longest.Load() {
		}
		remembered.Store(now.UnixNano())
	}
	return Wait(wait)
}

// Lately returns the longest Wait of late, 0 if none was severe.
func Lately() Wait {
	if ago := time.Since(time.Unix(0, remembered.Load())); ago < 0 || ago >= lately {
		return 0
	}
	return Wait(longest.Load())
}

// Busy reports whether processor time may be what kept a call waiting that is given some time.
func (w Wait) Busy(given time.Duration) bool {
	return time.Duration(w) >= max(given/busyPart, busyFloor) || Lately() > 0
}

// Severe reports whether processor time is likely to be what kept it waiting.
func (w Wait) Severe(given time.Duration) bool {
	return time.Duration(w) >= max(given/severePart, severeFloor)
}
