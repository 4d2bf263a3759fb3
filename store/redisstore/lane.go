package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// ErrQueueFull is wrapped by the error of a Take if [Config.MaxQueue] calls wait to be sent to its server. The call
// was not sent. It wraps [store.ErrOverloaded]: clients can fill the queue although the server works.
var ErrQueueFull = fmt.Errorf("redisstore: queue full: %w", store.ErrOverloaded)

// ErrClosed is wrapped by the error of a Take after Close. The call was not sent.
var ErrClosed = errors.New("redisstore: closed")

// A lane is the path to one server. Calls wait in batches, and flights carry the batches, several at once.
//
// A call never waits for later calls. It leaves as soon as a flight is free, together with all calls that came
// before.
//
// Calls that take slots, and the renewals of slots, have lanes of their own: see holdings.
type lane struct {
	engine *engine
	most   int  // flights at once
	claims bool // its calls claim slots

	server               *lane // the lane of the other calls to this server; it may be this one
	acquiring, asserting *lane // of the calls that take slots, and of the renewals and releases; nil in these

	unansweredSince atomic.Int64 // the time since which an answer is outstanding, in Unix nanoseconds; 0: none is

	crossing crossing

	mu      sync.Mutex
	waiting []*batch // the last one is still being filled
	queued  int      // calls in them
	flights int      // counted ones: at most most, without those handed over
	coming  bool     // one of them has begun but has not taken its first batch
	crowded bool     // the last batch had several calls, so more are likely
	out     []*flight
	overdue int // flights that were handed over and are still under way
	wakeups wakeups

	contexts clientContexts
}

// init makes l, the lane to a server, ready to use.
func (l *lane) init(e *engine) *lane {
	l.engine, l.most, l.server = e, e.maxInFlight, l
	l.acquiring = &lane{engine: e, most: 1, claims: true, server: l}
	l.asserting = &lane{engine: e, most: 1, claims: true, server: l}
	return l
}

// submit queues c, or sends it at once if nothing is under way. The caller waits for c until ctx ends. submit reports
// whether the caller has sent c itself.
//
// A caller that sends its call gives up a connection whose handshake outlasts the deadline. All callers after it would
// do the same. So while the server owes an answer, calls wait for flights, in which the client takes its own time.
func (l *lane) submit(ctx context.Context, c *call) (direct bool, err error) {
	l.mu.Lock()
	if l.engine.closed.Load() || l.flights > 0 || l.crowded || l.unansweredSince.Load() != 0 || !l.engine.direct(ctx) {
		l.mu.Unlock()
		c.mayWake = mayBeWoken(ctx, c)
		return false, l.enqueue(c)
	}
	l.begin()
	l.depart(&c.flight)
	l.mu.Unlock()
	l.fly(ctx, c)
	return true, nil
}

// send asks the server for the answers to entries, by a client. since is the start of the flight.
func (l *lane) send(ctx context.Context, by Client, entries []entry, since time.Time) {
	if l.unansweredSince.Load() == 0 {
		l.unansweredSince.CompareAndSwap(0, since.UnixNano())
	}
	if l.engine.send(ctx, l, by, entries) {
		l.unansweredSince.Store(0)
	}
}

// unanswered returns for how long an answer of the server has been outstanding.
func (l *lane) unanswered() time.Duration {
	since := l.unansweredSince.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}

// enqueue adds c to the calls for the next flight.
func (l *lane) enqueue(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine.closed.Load() {
		return ErrClosed
	}
	if l.queued >= l.engine.maxQueue {
		return ErrQueueFull
	}
	l.queue(c)
	if c.mayWake {
		l.wakeups.add(l, c)
	}
	return nil
}

// requeue adds calls that were accepted before. Neither a full queue nor Close refuses them.
func (l *lane) requeue(calls ...*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		l.queue(c)
	}
}

// queue adds c to the waiting batches. The lane is locked.
func (l *lane) queue(c *call) {
	if n := len(l.waiting); n == 0 || !l.waiting[n-1].add(c, l.engine.maxBatch) {
		b := newBatch()
		b.add(c, l.engine.maxBatch)
		l.waiting = append(l.waiting, b)
	}
	l.queued++
	l.startFlight()
}

// startFlight begins a flight for waiting calls, if one more is permitted. The lane is locked.
func (l *lane) startFlight() {
	if len(l.waiting) > 0 && l.flights < l.most && !l.coming {
		l.begin()
		l.coming = true
		go l.flush()
	}
}
