// Package deadline is a context whose timeout costs next to nothing until somebody waits for it.
package deadline

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A Context is Parent, ended by Terms. The timeout counts from when somebody first asks for it, so that a store that
// answers from memory, and never asks, does not read the clock. There is no timer before somebody asks for Done: a store
// that only has to know the Deadline does not cost one. It must not be copied.
type Context struct {
	Parent context.Context
	Terms  *Terms

	at    atomic.Int64 // the deadline, in nanoseconds since epoch; 0: nobody has asked yet
	timer atomic.Pointer[timer]
}

// Terms are when Contexts end.
type Terms struct {
	Timeout time.Duration

	// Detached says that a cancelled Parent does not end them. The deadline of Parent still does.
	Detached bool
}

// epoch is what deadlines count from, by the monotonic clock.
var epoch = time.Now()

// A timer is what ends a Context that somebody waits for.
type timer struct {
	context.Context
	stop context.CancelFunc
}

// deadline returns when c ends, if its parent is not cancelled before.
func (c *Context) deadline() time.Time {
	at := c.at.Load()
	if at == 0 {
		end := time.Now().Add(c.Terms.Timeout)
		if parents, limited := c.Parent.Deadline(); limited && parents.Before(end) {
			end = parents
		}
		at = int64(end.Sub(epoch))
		if !c.at.CompareAndSwap(0, at) {
			at = c.at.Load()
		}
	}
	return epoch.Add(time.Duration(at))
}

func (c *Context) started() *timer {
	if t := c.timer.Load(); t != nil {
		return t
	}
	parent := c.Parent
	if c.Terms.Detached {
		parent = context.WithoutCancel(parent)
	}
	t := new(timer)
	t.Context, t.stop = context.WithDeadline(parent, c.deadline())
	if !c.timer.CompareAndSwap(nil, t) {
		t.stop()
	}
	return c.timer.Load()
}

// over is the timer of Contexts that have ended before somebody waited for them.
var over = func() *timer {
	ended, end := context.WithCancel(context.Background())
	end()
	return &timer{ended, end}
}()

// End stops the timer, and tells those who still wait that nobody waits for them. A timer does not start any more:
// nobody would stop it, and Parent may be in use for something else.
func (c *Context) End() {
	if !c.timer.CompareAndSwap(nil, over) {
		c.timer.Load().stop()
	}
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.deadline(), true }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.started().Done() }

// Err implements context.Context.
func (c *Context) Err() error {
	if t := c.timer.Load(); t != nil {
		return t.Err()
	}
	if !c.Terms.Detached {
		if err := c.Parent.Err(); err != nil {
			return err
		}
	}
	if at := c.at.Load(); at != 0 && int64(time.Since(epoch)) >= at {
		return context.DeadlineExceeded
	}
	return nil
}

// timeoutKey is the key of a Context's Timeout.
type timeoutKey struct{}

// TimeoutOf returns the Timeout of the Context that ctx is or was made from, 0 if there is none.
func TimeoutOf(ctx context.Context) time.Duration {
	timeout, _ := ctx.Value(timeoutKey{}).(time.Duration)
	return timeout
}

// untimedKey is the key of whether a Context has no timer.
type untimedKey struct{}

// Untimed reports whether ctx is or was made from a Context that has no timer yet, and would by Done.
func Untimed(ctx context.Context) bool {
	untimed, _ := ctx.Value(untimedKey{}).(bool)
	return untimed
}

// Value implements context.Context. It also serves package context, which finds the timer by it, and so needs
// no goroutine to pass on its end.
func (c *Context) Value(key any) any {
	switch key.(type) {
	case timeoutKey:
		return c.Terms.Timeout
	case untimedKey:
		return c.timer.Load() == nil
	}
	if t := c.timer.Load(); t != nil && t != over {
		return t.Value(key)
	}
	return c.Parent.Value(key)
}

// String names the chain of contexts, as those of package context do, and nothing that they hold.
func (c *Context) String() string {
	return Name(c.Parent) + ".WithTimeout(" + c.Terms.Timeout.String() + ")"
}

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
