// Package starved distinguishes a lack of processor time from a server that does not answer.
//
// A timer fires before the goroutines that are ready to run, such as the one that has the answer. So on a busy
// machine a deadline can pass although the answer came in time. If the whole process stood still, it notices the
// deadline late.
package starved

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// A Wait is Busy from this part of a call's time on. Below busyFloor, it may be the delay of a timer on an idle
	// machine, which is some microseconds on most.
	busyPart  = 20
	busyFloor = 5 * time.Millisecond

	// A Wait is Severe from this larger part on. The part is not larger still, because a call needs several steps of
	// several goroutines.
	severePart  = 4
	severeFloor = 25 * time.Millisecond

	// lately is how long a Wait of severeFloor or more is remembered, because load comes in waves.
	lately = time.Second
)

// remembered is the time of the last such Wait, in Unix nanoseconds. longest is the longest one of an uninterrupted
// series.
var remembered, longest atomic.Int64

// A Wait is the time for which a goroutine that was ready did not run.
type Wait time.Duration

// Since lets the other ready goroutines run, and returns the time since due when it continues. due is the present
// time, or the time of a timer that has just woken this goroutine. The results of the other goroutines may be
// available when it returns.
func Since(due time.Time) Wait {
	runtime.Gosched()
	if time.Since(due) < busyFloor {
		runtime.Gosched() // the scheduler may have taken this goroutine first, as it does each 61st time
	}
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

// Lately returns the longest recent Wait, or 0 if none was severe.
func Lately() Wait {
	if ago := time.Since(time.Unix(0, remembered.Load())); ago < 0 || ago >= lately {
		return 0
	}
	return Wait(longest.Load())
}

// Busy reports whether a lack of processor time can be the reason why a call with this time limit had to wait.
func (w Wait) Busy(given time.Duration) bool {
	return time.Duration(w) >= max(given/busyPart, busyFloor) || Lately() > 0
}

// Severe reports whether a lack of processor time is the likely reason.
func (w Wait) Severe(given time.Duration) bool {
	return time.Duration(w) >= max(given/severePart, severeFloor)
}
