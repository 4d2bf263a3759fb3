package observe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

const (
	maxWarned = 16_384      // keys that are remembered of a policy, and calls that wait
	maxCalls  = 4           // calls of a policy that run at once
	callTime  = time.Minute // until the context of a call ends

	// quietRate is the shortest time between two calls for a key under a rate, unless the limit is raised. Otherwise a client
	// that uses a small burst again and again would have a mail each time.
	quietRate = time.Hour

	// maxLate is how late a reply of the store may be known to be of the period before. Periods are longer.
	maxLate = time.Minute
)

// A watched is what a Threshold knows of the keys of a policy.
type watched struct {
	mu      sync.Mutex
	keys    map[uint64]warned // by the hash of a warnedKey, so that clients do not choose how much memory it takes
	waiting []Warning
	running int // calls that run now
}

// A warnedKey is what is warned of once. A policy that changes from a rate to a quota, or to another period, begins anew.
type warnedKey struct {
	policy, key string
	period      ratelimit.Period
}

// warned is the last call for a key.
type warned struct {
	limit int64         // how many tokens its bucket could hold
	until time.Duration // when the key has recovered, since the Threshold was made
}

func newWatched() *watched { return &watched{keys: make(map[uint64]warned)} }

// isWarned reports whether there was a call for a key that has not recovered. A key under a rate recovers later if it is
// still above the share.
func (w *watched) isWarned(now time.Duration, key uint64, as warned, isRate bool) bool {
	last, ok := w.keys[key]
	late := !isRate && as.until < last.until+maxLate
	if !ok || now >= last.until && !late || as.limit > last.limit {
		return false
	}
	if isRate && as.until > last.until {
		last.until = as.until
		w.keys[key] = last
	}
	return true
}

// makeRoom reports whether there is room for a key. If not, it forgets a key that has recovered. It looks at a few keys only,
// because a request waits for it.
func (w *watched) makeRoom(now time.Duration, key uint64) bool {
	if _, ok := w.keys[key]; ok || len(w.keys) < maxWarned {
		return true
	}
	looks := 8
	for old, last := range w.keys { // begins anywhere
		if now >= last.until {
			delete(w.keys, old)
			return true
		}
		if looks--; looks == 0 {
			break
		}
	}
	return false
}

// remember remembers a call for a key, if there is room.
func (w *watched) remember(key uint64, as warned) {
	if _, ok := w.keys[key]; ok || len(w.keys) < maxWarned {
		w.keys[key] = as
	}
}

// call calls Passed, now or when an earlier call has returned.
func (w *watched) call(t *Threshold, warning Warning) {
	if w.running == maxCalls {
		w.waiting = append(w.waiting, warning)
		return
	}
	w.running++
	t.running.Go(func() { w.run(t, warning) })
}

// run makes a call, and then begins the next one in another goroutine, because Passed may end this one.
func (w *watched) run(t *Threshold, warning Warning) {
	defer w.callNext(t)
	defer func() {
		if fault := recover(); fault != nil {
			t.panicked.Add(1)
			t.log.LogKind(t.ctx, "panic", fmt.Errorf("panic: %v\n%s", fault, debug.Stack()), slog.String("policy", warning.Policy))
		}
	}()
	t.calls.Add(1)
	ctx, cancel := context.WithTimeout(t.ctx, callTime)
	defer cancel()
	t.passed(ctx, warning)
}

func (w *watched) callNext(t *Threshold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if len(w.waiting) == 0 || t.ctx.Err() != nil {
		w.waiting = nil // the array stays otherwise
		return
	}
	next := w.waiting[0]
	w.waiting[0] = Warning{} // so that its key can be collected
	w.waiting = w.waiting[1:]
	w.call(t, next)
}
