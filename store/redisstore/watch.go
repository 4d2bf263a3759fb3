package redisstore

import (
	"context"
	"time"
)

// Most calls are answered long before their deadlines. So a caller that has time waits for its answer alone, which takes
// neither a timer of its own nor a select. The lane wakes those that wait for long, who then look at their contexts. Only
// those whose deadlines are near wait for them.

// watchEvery is how often a lane looks for callers that wait for long: one that has waited for between one and two times
// as long. So much later does a caller notice that its context was cancelled.
const watchEvery = 20 * time.Millisecond

// A watch has the calls of a lane whose callers are to be woken. The lane's mutex guards it, except for old.
type watch struct {
	young, old []watched // those that came since the last look, and before that
	timer      *time.Timer
	running    bool
}

// watched is a call in one of its uses.
type watched struct {
	call *call
	use  uint32
}

// watchable reports whether c, a call under ctx, will have time left when it is woken.
func watchable(ctx context.Context, c *call) bool {
	if !c.limited {
		return ctx.Done() != nil
	}
	return time.Until(c.deadline) > 3*watchEvery
}

// add has c woken. The lane is locked.
func (w *watch) add(l *lane, c *call) {
	w.young = append(w.young, watched{c, c.wakes.Load()})
	switch {
	case w.running:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(watchEvery, l.look)
	default:
		w.timer.Reset(watchEvery)
	}
	w.running = true
}

// look wakes those who wait for long, and looks again later if there may be others by then.
func (l *lane) look() {
	w := &l.watch
	for i := range w.old { // which is look's alone, so the lane need not be locked
		w.old[i].wake()
	}
	clear(w.old)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.young, w.old = w.old[:0], w.young
	if w.running = len(w.old) > 0; w.running {
		w.timer.Reset(watchEvery)
	}
}

// wake wakes the caller, unless its call is not the same any more.
func (w watched) wake() {
	if w.call.wakes.CompareAndSwap(w.use, w.use+1) {
		w.call.done <- false // there is room for this and for the end
	}
}

// watchAgain has c woken once more, whose caller was.
func (l *lane) watchAgain(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.woken = false
	c.wakes.Add(1)
	l.watch.add(l, c)
}

// unwatch ends a use of c, which is done.
func (c *call) unwatch() {
	if !c.watched {
		return
	}
	use := c.wakes.Load() &^ 1
	if !c.wakes.CompareAndSwap(use, use+2) { // it was woken
		if !c.woken {
			<-c.done // which comes at once
		}
		c.wakes.Store(use + 2)
	}
	c.watched, c.woken = false, false
}
