// Package deadline is a context whose timeout costs nothing until somebody asks for it.
package deadline

import (
	"context"
	"sync/atomic"
	"time"
)

// A Context is Parent, ended after Timeout, which counts from when somebody first asks. So a store that
// answers from memory, and never asks, does not cost a timer on each request. It must not be copied.
type Context struct {
	Parent  context.Context
	Timeout time.Duration
	timer   atomic.Pointer[timer]
}

// A timer is a deadline that somebody has asked for.
type timer struct {
	context.Context
	stop context.CancelFunc
}

func (c *Context) started() *timer {
	if t := c.timer.Load(); t != nil {
		return t
	}
	t := new(timer)
	t.Context, t.stop = context.WithTimeout(c.Parent, c.Timeout)
	if !c.timer.CompareAndSwap(nil, t) {
		t.stop()
	}
	return c.timer.Load()
}

// End stops the timer, and tells those who still wait that nobody waits for them.
func (c *Context) End() {
	if t := c.timer.Load(); t != nil {
		t.stop()
	}
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.started().Deadline() }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.started().Done() }

// Err implements context.Context.
func (c *Context) Err() error {
	if t := c.timer.Load(); t != nil {
		return t.Err()
	}
	return c.Parent.Err()
}

// Value implements context.Context. It also serves package context, which finds the timer by it, and so needs
// no goroutine to pass on its end.
func (c *Context) Value(key any) any {
	if t := c.timer.Load(); t != nil {
		return t.Value(key)
	}
	return c.Parent.Value(key)
}
