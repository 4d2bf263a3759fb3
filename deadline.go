package ratelimit

import (
	"context"
	"time"
)

// A deadline is the context of the store's call: that of an exchange, ended after its timeout, which counts
// from when somebody first asks. So a store that answers from memory, and never asks, does not cost a
// timer on each request.
type deadline exchange

// A timer is a deadline that somebody has asked for.
type timer struct {
	context.Context
	stop context.CancelFunc
}

func (d *deadline) started() *timer {
	if t := d.timer.Load(); t != nil {
		return t
	}
	t := new(timer)
	t.Context, t.stop = context.WithTimeout(d.Context, d.timeout)
	if !d.timer.CompareAndSwap(nil, t) {
		t.stop()
	}
	return d.timer.Load()
}

// end stops the timer, and tells those who still wait that nobody waits for them.
func (d *deadline) end() {
	if t := d.timer.Load(); t != nil {
		t.stop()
	}
}

func (d *deadline) Deadline() (time.Time, bool) { return d.started().Deadline() }

func (d *deadline) Done() <-chan struct{} { return d.started().Done() }

func (d *deadline) Err() error {
	if t := d.timer.Load(); t != nil {
		return t.Err()
	}
	return d.Context.Err()
}

// Value also serves package context, which finds the timer by it, and so needs no goroutine to pass on
// its end.
func (d *deadline) Value(key any) any {
	if t := d.timer.Load(); t != nil {
		return t.Value(key)
	}
	return d.Context.Value(key)
}
