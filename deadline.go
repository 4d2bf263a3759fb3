package ratelimit

import (
	"context"
	"sync"
	"time"
)

// A deadline is a context that ends after a timeout, counted from when somebody first asks. So a store
// that answers from memory, and never asks, does not cost a timer on each request.
type deadline struct {
	context.Context // the caller's
	timeout         time.Duration

	mu    sync.Mutex
	timed context.Context // nil until somebody asks
	stop  context.CancelFunc
}

func (d *deadline) started() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timed == nil {
		d.timed, d.stop = context.WithTimeout(d.Context, d.timeout)
	}
	return d.timed
}

// end stops the timer, and tells those who still wait that nobody waits for them.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		d.stop()
	}
}

func (d *deadline) Deadline() (time.Time, bool) { return d.started().Deadline() }

func (d *deadline) Done() <-chan struct{} { return d.started().Done() }

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timed != nil {
		return d.timed.Err()
	}
	return d.Context.Err()
}

// Value also serves package context, which finds the timer by it, and so needs no goroutine to pass on
// its end.
func (d *deadline) Value(key any) any {
	d.mu.Lock()
	timed := d.timed
	d.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return d.Context.Value(key)
}
