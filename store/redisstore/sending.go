package redisstore

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
)

// go-redis calls Done of the context of each command. From then on the context of a decision has a timer, which costs
// more than all else that is done for a lone call here. But the client only waits for Done while it has no connection.
// So the client is given another context. Its Done costs no timer, unless the call takes long.

// A sending is the context of a lone call for the client. It ends with the call. It also ends with Context, but not
// before a look: up to watchEvery after the client called Done. So Context must not have a deadline before that.
type sending struct {
	context.Context

	all        *sendings // whose mutex guards the rest
	done       chan struct{}
	over       error       // why it has ended
	stop       func() bool // ends follow; nil: it does not follow Context yet
	young      bool        // it is in the list
	next, prev *sending
}

// sendings are those of a lane whose Done was called since the last look.
type sendings struct {
	mu    sync.Mutex
	list  sending // a ring, in which this one stands between the last and the first
	timer *time.Timer
	timed bool
}

// of returns the context for the client of c, a lone call under ctx, or nil if that is ctx.
func (all *sendings) of(ctx context.Context, c *call) *sending {
	if !deadline.Untimed(ctx) || !watchable(ctx, c) {
		return nil
	}
	return &sending{Context: ctx, all: all}
}

// Done implements context.Context.
func (s *sending) Done() <-chan struct{} {
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
func (s *sending) Err() error {
	s.all.mu.Lock()
	over := s.over
	s.all.mu.Unlock()
	if over != nil {
		return over
	}
	return s.Context.Err()
}

// String names the chain of contexts, and nothing that they hold.
func (s *sending) String() string { return deadline.Name(s.Context) + ".WithinCall" }

// Format prints String, whatever the verb: others would print what Context holds.
func (s *sending) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// end is for s when its call has ended, or Context.
func (s *sending) end(why error) {
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

// follow has s end with Context.
func (s *sending) follow() {
	stop := context.AfterFunc(s.Context, func() { s.end(s.Context.Err()) }) // not under the mutex: Context may be anybody's
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.stop = stop; s.over != nil {
		stop()
	}
}

// add puts s into the list, and has look called.
func (all *sendings) add(s *sending) {
	if all.list.next == nil {
		all.list.next, all.list.prev = &all.list, &all.list
	}
	s.next, s.prev, s.young = &all.list, all.list.prev, true
	s.prev.next, s.next.prev = s, s
	switch {
	case all.timed:
		return
	case all.timer == nil:
		all.timer = time.AfterFunc(watchEvery, all.look)
	default:
		all.timer.Reset(watchEvery)
	}
	all.timed = true
}

func (all *sendings) remove(s *sending) {
	s.prev.next, s.next.prev = s.next, s.prev
	s.next, s.prev, s.young = nil, nil, false
}

// look has all that have not ended follow their Contexts.
func (all *sendings) look() {
	all.mu.Lock()
	all.timed = false
	var old []*sending
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
