package redisstore

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrQueueFull is in the error of a Take that finds Config.MaxQueue calls waiting to be sent to its server.
// It was not sent.
var ErrQueueFull = errors.New("redisstore: queue full")

// ErrClosed is in the error of a Take after Close. It was not sent.
var ErrClosed = errors.New("redisstore: closed")

// A lane is the way to one server: calls wait in batches, and flights take those there, several at once. A
// flight is a goroutine that sends batch after batch while there are any, or a lone caller that finds
// nothing under way and sends its call itself.
//
// No call ever waits for others to come: it leaves as soon as a flight is free, with all that came before.
type lane struct {
	engine *engine

	mu      sync.Mutex
	waiting []*batch // the last one is being filled
	queued  int      // calls in them
	flights int
	coming  bool // a flight has begun and not yet taken its first batch
}

// submit sees to it that c will be done: at once, if nothing is under way.
func (l *lane) submit(c *call) error {
	l.mu.Lock()
	if closed := l.engine.closed.Load(); closed || l.flights > 0 || !l.engine.direct(c.ctx) {
		l.mu.Unlock()
		return l.enqueue(c)
	}
	l.begin()
	l.mu.Unlock()
	l.fly(c)
	return nil
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
	return nil
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

// begin counts a flight. The lane is locked.
func (l *lane) begin() {
	l.flights++
	l.engine.flying.Add(1)
}

// end ends a flight, unless it hands over to another that takes what has come meanwhile.
func (l *lane) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		go l.flush()
		return
	}
	l.flights--
	l.engine.flying.Done()
}

// fly is a flight with one call, on the goroutine of its caller, which ends by the call's own context.
func (l *lane) fly(c *call) {
	defer l.end()
	b := newBatch()
	b.add(c, l.engine.maxBatch)
	l.engine.send(c.ctx, b.entries)
	b.release()
}

// flush is a flight.
func (l *lane) flush() {
	for {
		b := l.take()
		if b == nil {
			return
		}
		if !l.carry(b) {
			return
		}
	}
}

// take returns the batch that is to leave next. Without one, the flight ends.
func (l *lane) take() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coming = false
	if len(l.waiting) == 0 {
		l.flights--
		l.engine.flying.Done()
		return nil
	}
	b := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	l.queued -= b.calls
	l.summon()
	return b
}

// carry sends b, and reports whether the flight goes on. If the client does not come back when nobody waits
// for b any longer, the flight is another goroutine's from then on.
func (l *lane) carry(b *batch) bool {
	deadline := b.claim()
	if len(b.entries) == 0 {
		b.release()
		return true
	}
	ctx, cancel := withDeadline(deadline)
	defer cancel()
	if deadline.IsZero() {
		l.engine.send(ctx, b.entries)
		b.release()
		return true
	}
	var over atomic.Bool
	watch := time.AfterFunc(time.Until(deadline), func() {
		if over.CompareAndSwap(false, true) {
			l.end()
		}
	})
	defer watch.Stop()
	l.engine.send(ctx, b.entries)
	if !over.CompareAndSwap(false, true) {
		return false
	}
	b.release()
	return true
}
