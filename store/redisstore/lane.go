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

// A lane is the way to one server: calls wait in batches, and flights take those there, several at once.
//
// No call ever waits for others to come: it leaves as soon as a flight is free, with all that came before.
type lane struct {
	engine *engine
	silent atomic.Int64 // since when the server owes an answer, in Unix nanoseconds; 0: it does not

	crossing crossing

	mu      sync.Mutex
	waiting []*batch // the last one is being filled
	queued  int      // calls in them
	flights int      // those that count: neither more than maxInFlight, nor handed over
	coming  bool     // one of them has begun and not yet taken its first batch
	crowded bool     // the last batch had several calls, so that more will come
	out     []*flight
	overdue int // those that were handed over and are still under way
	watch   watch

	sendings sendings
}

// submit sees to it that c, which its caller waits for until ctx ends, will be done: at once, if nothing is
// under way. It reports whether the caller has sent c itself.
//
// A caller that sends its call gives up a connection whose handshake outlasts the deadline, and so would all that follow.
// So while the server owes an answer, calls wait for flights, in which the client takes its own time.
func (l *lane) submit(ctx context.Context, c *call) (direct bool, err error) {
	l.mu.Lock()
	if l.engine.closed.Load() || l.flights > 0 || l.crowded || l.silent.Load() != 0 || !l.engine.direct(ctx) {
		l.mu.Unlock()
		c.watched = watchable(ctx, c)
		return false, l.enqueue(c)
	}
	l.begin()
	l.depart(&c.flight)
	l.mu.Unlock()
	l.fly(ctx, c)
	return true, nil
}

// send has entries answered by the server, which a client sends it. Their flight left at since.
func (l *lane) send(ctx context.Context, by Client, entries []entry, since time.Time) {
	if l.silent.Load() == 0 {
		l.silent.CompareAndSwap(0, since.UnixNano())
	}
	if l.engine.send(ctx, l, by, entries) {
		l.silent.Store(0)
	}
}

// silence returns for how long the server has answered nothing, though it was sent something.
func (l *lane) silence() time.Duration {
	since := l.silent.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}

// enqueue adds c to what waits for the next flight.
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
	if c.watched {
		l.watch.add(l, c)
	}
	return nil
}

// requeue adds what was accepted before: neither a full queue nor Close refuses it.
func (l *lane) requeue(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue(c)
}

// queue adds c to the batches that wait. The lane is locked.
func (l *lane) queue(c *call) {
	if n := len(l.waiting); n == 0 || !l.waiting[n-1].add(c, l.engine.maxBatch) {
		b := newBatch()
		b.add(c, l.engine.maxBatch)
		l.waiting = append(l.waiting, b)
	}
	l.queued++
	l.summon()
}

// summon begins a flight for what waits, if there may be one more. The lane is locked.
func (l *lane) summon() {
	if len(l.waiting) > 0 && l.flights < l.engine.maxInFlight && !l.coming {
		l.begin()
		l.coming = true
		go l.flush()
	}
}
