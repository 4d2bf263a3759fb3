package redisstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
)

// A waiter waits for the calls of one Take. Where its deadline passes for want of processor time, it waits for as
// long again, once: the answer may have come, and wait for a processor as everything else does.
type waiter struct {
	ctx    context.Context
	waited bool      // for a call that was done in time
	end    time.Time // of the second time; zero before that
	lack   starved.Wait
}

// await waits until c, which is on its way through l, is done. It returns an error if it gives up before: c is then
// left to those who have it.
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
	return l.verdict(w.ctx, w.lack)
}

// lacking reports whether c, whose flight has ended by a deadline, may have failed for want of processor time. Only who
// has sent a call itself was woken by that deadline.
func lacking(ctx context.Context, c *call, direct bool) bool {
	if direct && c.limited {
		return starved.Since(c.deadline).Severe(given(ctx))
	}
	return starved.Since(time.Now()).Busy(given(ctx))
}

// verdict returns the error of a call under ctx that got no reply in time, though this process lacked processor
// time.
func (l *lane) verdict(ctx context.Context, lack starved.Wait) error {
	// A reply that waits for a processor is that much late, and so is who takes note of it.
	lack = max(lack, starved.Lately())
	if l.silence() >= given(ctx)*3/2+2*time.Duration(lack) {
		return late(cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	return overloaded(cmp.Or(ctx.Err(), context.DeadlineExceeded))
}
