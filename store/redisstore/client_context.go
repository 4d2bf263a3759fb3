package redisstore

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
)

// go-redis calls Done of the context of each command. Done starts a timer in the context of a decision, which costs
// more than all other work for a lone call here. But the client waits for Done only while it has no connection. So
// the client gets another context, whose Done starts no timer unless the call takes long.

// A clientContext is the client's context for a lone call. It ends with the call. It also ends with Context, up to
// watchEvery late, counted from the client's call of Done. So Context must not have an earlier deadline.
type clientContext struct {
	context.Context

	all        *clientContexts // its mutex guards the fields below
	done       chan struct{}
	over       error       // why the context has ended
	stop       func() bool // stops follow; nil: it does not follow Context yet
	young      bool        // it is in the list
	next, prev *clientContext
}

// clientContexts are the clientContexts of a lane whose Done was called since the last look.
type clientContexts struct {
	mu    sync.Mutex
	list  clientContext // a ring; this one stands between the last and the first
	timer *time.Timer
	timed bool
}

// forCall returns the context for the client of c, a lone call under ctx. It returns nil if the client can use ctx itself.
func (all *clientContexts) forCall(ctx context.Context, c *call) *clientContext {
	if !deadline.Untimed(ctx) || !mayBeWoken(ctx, c) {
		return nil
	}
	return &clientContext{Context: ctx, all: all}
}

// Done implements context.Context.
func (s *clientContext) Done() <-chan struct{} {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.over != nil {
			close(s.done)
		} else {
			s.all.add(s)
		}
	}
	return s.done
}

// Err implements context.Context.
func (s *clientContext) Err() error {
	s.all.mu.Lock()
	over := s.over
	s.all.mu.Unlock()
	if over != nil {
		return over
	}
	return s.Context.Err()
}

// String names the chain of contexts, without the values that they hold.
func (s *clientContext) String() string { return deadline.Name(s.Context) + ".WithinCall" }

// Format prints String for every verb. Otherwise fmt would print the fields of Context.
func (s *clientContext) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// end ends s for the reason why.
func (s *clientContext) end(why error) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.over != nil {
		return
	}
	s.over = why
	if s.young {
		s.all.remove(s)
	}
	if s.stop != nil {
		s.stop()
	}
	if s.done != nil {
		close(s.done)
	}
}

// follow ends s when Context ends.
func (s *clientContext) follow() {
	stop := context.AfterFunc(s.Context, func() { s.end(s.Context.Err()) }) // not under the mutex: Context may be of any type
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.stop = stop; s.over != nil {
		stop()
	}
}

// add puts s into the list, and schedules look.
func (all *clientContexts) add(s *clientContext) {
	if all.list.next == nil {
		all.list.next, all.list.prev = &all.list, &all.list
	}
	s.next, s.prev, s.young = &all.list, all.list.prev, true
	s.prev.next, s.next.prev = s, s
	switch {
	case all.timed:
		return
	case all.timer == nil:
		all.timer = time.AfterFunc(wakeEvery, all.look)
	default:
		all.timer.Reset(wakeEvery)
	}
	all.timed = true
}

func (all *clientContexts) remove(s *clientContext) {
	s.prev.next, s.next.prev = s.next, s.prev
	s.next, s.prev, s.young = nil, nil, false
}

// look lets all contexts that have not ended follow their Contexts.
func (all *clientContexts) look() {
	all.mu.Lock()
	all.timed = false
	var old []*clientContext
	for all.list.next != &all.list {
		s := all.list.next
		all.remove(s)
		old = append(old, s)
	}
	all.mu.Unlock()
	for _, s := range old {
		s.follow()
	}
}
