package redisstore

import (
	"context"
	"time"
)

// Most calls are answered long before their deadlines. So a caller with enough time waits for its answer only,
// without a timer or a select. The lane wakes callers that have waited for long, and these check their contexts. Only
// callers with a near deadline also wait for their contexts.

// wakeEvery is the interval at which a lane wakes callers that have waited for one to two intervals. A caller
// notices that its context was cancelled with this delay.
const wakeEvery = 20 * time.Millisecond

// A wakeups holds the calls of a lane whose callers will be woken. The lane's mutex guards it, except for old.
type wakeups struct {
	young, old []wakeup // calls since the last look, and calls from before it
	timer      *time.Timer
	running    bool
}

// wakeup is a call in one of its uses.
type wakeup struct {
	call *call
	use  uint32
}

// mayBeWoken reports whether c, a call under ctx, will have time left when it is woken.
func mayBeWoken(ctx context.Context, c *call) bool {
	if !c.limited {
		return ctx.Done() != nil
	}
	return time.Until(c.deadline) > 3*wakeEvery
}

// add makes look wake the caller of c. The lane is locked.
func (w *wakeups) add(l *lane, c *call) {
	w.young = append(w.young, wakeup{c, c.wakes.Load()})
	switch {
	case w.running:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(wakeEvery, l.look)
	default:
		w.timer.Reset(wakeEvery)
	}
	w.running = true
}

// look wakes the callers that have waited for long. It schedules the next look if there may be others by then.
func (l *lane) look() {
	w := &l.wakeups
	for i := range w.old { // only look uses old, so the lane need not be locked
		w.old[i].wake()
	}
	clear(w.old)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.young, w.old = w.old[:0], w.young
	if w.running = len(w.old) > 0; w.running {
		w.timer.Reset(wakeEvery)
	}
}

// wake wakes the caller, unless its call is in another use.
func (w wakeup) wake() {
	if w.call.wakes.CompareAndSwap(w.use, w.use+1) {
		w.call.done <- false // the channel has room for this and for the end
	}
}

// wakeAgain makes look wake the caller of c once more.
func (l *lane) wakeAgain(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.woken = false
	c.wakes.Add(1)
	l.wakeups.add(l, c)
}

// endWakeup ends a use of c, which is done.
func (c *call) endWakeup() {
	if !c.mayWake {
		return
	}
	use := c.wakes.Load() &^ 1
	if !c.wakes.CompareAndSwap(use, use+2) { // its caller was woken
		if !c.woken {
			<-c.done // the value comes at once
		}
		c.wakes.Store(use + 2)
	}
	c.mayWake, c.woken = false, false
}
