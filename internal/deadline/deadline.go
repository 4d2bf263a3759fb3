// Package deadline is a context whose timeout costs almost nothing until a caller waits for it.
package deadline

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A Context is Parent with the timeout of Terms. The timeout begins at the first call that needs it. So a store that
// answers from memory does not read the clock. The timer starts only at a call of Done, so a store that only reads
// the Deadline does not need one. A Context must not be copied.
type Context struct {
	Parent context.Context
	Terms  *Terms

	at    atomic.Int64 // the deadline, in nanoseconds since epoch; 0: not set yet
	timer atomic.Pointer[timer]
}

// Terms are the conditions under which Contexts end.
type Terms struct {
	Timeout time.Duration

	// Detached lets them continue after Parent is cancelled. The deadline of Parent still ends them.
	Detached bool

	// Owner is the caller's own. It takes no room in a Context.
	Owner any
}

// epoch is the start of the deadlines on the monotonic clock.
var epoch = time.Now()

// A timer ends a Context that is waited for.
type timer struct {
	context.Context
	stop context.CancelFunc
}

// deadline returns when c ends if its parent is not cancelled before.
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

// over is the timer of Contexts that ended before anybody waited for them.
var over = func() *timer {
	ended, end := context.WithCancel(context.Background())
	end()
	return &timer{ended, end}
}()

// End stops the timer, and ends the context for remaining waiters. After it no timer starts: nobody would stop it, and
// Parent may be in use for something else.
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

// TimeoutOf returns the Timeout of the Context that ctx is or was made from. It returns 0 if there is none.
func TimeoutOf(ctx context.Context) time.Duration {
	timeout, _ := ctx.Value(timeoutKey{}).(time.Duration)
	return timeout
}

// untimedKey is the key of the value that reports whether a Context has no timer.
type untimedKey struct{}

// Untimed reports whether ctx is or was made from a Context that would start its timer at Done.
func Untimed(ctx context.Context) bool {
	untimed, _ := ctx.Value(untimedKey{}).(bool)
	return untimed
}

// Value implements context.Context. Package context finds the timer by it, and then needs no goroutine to pass on its
// end.
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

// String names the chain of contexts, as package context does, without the values that they hold.
func (c *Context) String() string {
	return Name(c.Parent) + ".WithTimeout(" + c.Terms.Timeout.String() + ")"
}

// Format prints String for every verb. Otherwise fmt would print the fields of the values in Parent.
func (c *Context) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) }

// Name returns the name of ctx for the String method of a context that is made from ctx. It never prints the fields
// of ctx: it may hold a request that other goroutines are writing.
func Name(ctx context.Context) string {
	if named, ok := ctx.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("%T", ctx)
}
