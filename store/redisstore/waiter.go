package redisstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
)

// A waiter waits for the calls of one Take. If its deadline passes because this process lacks processor time, it
// waits once more for the same time: the answer may have arrived and need processor time, too.
type waiter struct {
	ctx    context.Context
	waited bool      // for a call that was done in time
	end    time.Time // of the second wait; zero before it
	lack   starved.Wait
}

// await waits until c, which is in lane l, is done. If it gives up before, it returns an error. The caller must then
// leave c to the lane.
func (w *waiter) await(c *call, l *lane) error {
	if w.end.IsZero() {
		early := w.ctx.Err() == nil // or an earlier call has used up the time, which says nothing of processors
		if c.wait(w.ctx, l) {
			w.waited = true
			return nil
		}
		deadline, limited := w.ctx.Deadline()
		if !limited || !errors.Is(w.ctx.Err(), context.DeadlineExceeded) || w.waited && !early {
			return late(w.ctx.Err())
		}
		w.lack = starved.Since(deadline)
		if c.isDone() {
			return nil
		}
		if !w.lack.Busy(given(w.ctx)) {
			return late(w.ctx.Err())
		}
		w.end = time.Now().Add(given(w.ctx))
	}
	timer := time.NewTimer(time.Until(w.end))
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case done := <-c.done:
			if c.received(done) {
				return nil
			}
		case <-timer.C:
			waiting = false
		}
	}
	w.lack = max(w.lack, starved.Since(w.end))
	if c.isDone() {
		return nil
	}
	return l.timeoutError(w.ctx, w.lack)
}

// lacking reports whether c, whose flight ended at a deadline, may have failed for lack of processor time. The
// deadline only wakes a caller that has sent its call itself.
func lacking(ctx context.Context, c *call, direct bool) bool {
	if direct && c.limited {
		return starved.Since(c.deadline).Severe(given(ctx))
	}
	return starved.Since(time.Now()).Busy(given(ctx))
}

// timeoutError returns the error of a call under ctx that got no reply in time although this process lacked processor
// time.
func (l *lane) timeoutError(ctx context.Context, lack starved.Wait) error {
	// A reply that waits for a processor is late by this much, and so is the goroutine that reads it.
	lack = max(lack, starved.Lately())
	if l.unanswered() >= given(ctx)*3/2+2*time.Duration(lack) {
		return late(cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	return overloaded(cmp.Or(ctx.Err(), context.DeadlineExceeded))
}
