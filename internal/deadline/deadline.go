// Package deadline is a context whose timeout costs nothing until somebody asks for it.
package deadline

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A Context is Parent, ended after Timeout, which counts from when somebody first asks. So a store that
// answers from memory, and never asks, does not cost a timer on each request. It must not be copied.
type Context struct {
	Parent  context.Context
	Timeout time.Duration

	// Detached says that a cancelled Parent does not end it. The deadline of Parent still does.
	Detached bool

	timer atomic.Pointer[timer]
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
	parent, timeout := c.Parent, c.Timeout
	if c.Detached {
		if at, limited := parent.Deadline(); limited {
			timeout = min(timeout, time.Until(at))
		}
		parent = context.WithoutCancel(parent)
	}
	t := new(timer)
	t.Context, t.stop = context.WithTimeout(parent, timeout)
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
	if c.Detached {
		return nil
	}
	return c.Parent.Err()
}

// timeoutKey is the key of a Context's Timeout.
type timeoutKey struct{}

// TimeoutOf returns the Timeout of the Context that ctx is or was made from, 0 if there is none.
func TimeoutOf(ctx context.Context) time.Duration {
	timeout, _ := ctx.Value(timeoutKey{}).(time.Duration)
	return timeout
}

// Value implements context.Context. It also serves package context, which finds the timer by it, and so needs
// no goroutine to pass on its end.
func (c *Context) Value(key any) any {
	if key == (timeoutKey{}) {
		return c.Timeout
	}
	if t := c.timer.Load(); t != nil {
		return t.Value(key)
	}
	return c.Parent.Value(key)
}

// String names the chain of contexts, as those of package context do, and nothing that they hold.
func (c *Context) String() string { return Name(c.Parent) + ".WithTimeout(" + c.Timeout.String() + ")" }

// Format prints String, whatever the verb: others would print the fields of what Parent holds.
func (c *Context) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) }

// Name returns what a context made from ctx calls ctx in its own String method. It never prints the fields of
// ctx, which may hold a request, and which others may be writing.
func Name(ctx context.Context) string {
	if named, ok := ctx.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("%T", ctx)
}
