package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A flight is a way to the server and back, of a batch or of the call of a lone caller. A goroutine makes one after the
// other while batches wait; a lone caller that finds nothing under way makes its own.
//
// A connection may be dead without anybody knowing. So a flight that takes too long for one of those who wait is
// handed over: it goes on for its own callers, and another may begin in its place. See relieve.
//
// The lane's mutex guards the fields.
type flight struct {
	since   time.Time // when it left
	overdue bool      // it was handed over
	alone   bool      // all its callers have run out of time
	freed   bool      // close does not wait for it
}

// begin counts a flight. The lane is locked.
func (l *lane) begin() {
	l.flights++
	l.engine.flying.Add(1)
}

// depart notes that f leaves, which is one of those that count. The lane is locked.
func (l *lane) depart(f *flight) {
	*f = flight{since: time.Now()}
	l.out = append(l.out, f)
}

// land notes that f is back, and reports whether it still counts. The lane is locked.
func (l *lane) land(f *flight) bool {
	if !f.overdue {
		l.out = slices.DeleteFunc(l.out, func(other *flight) bool { return other == f })
		return true
	}
	l.overdue--
	l.free(f)
	return false
}

// free says that close need not wait for f, which was handed over. The lane is locked.
func (l *lane) free(f *flight) {
	if !f.freed {
		f.freed = true
		l.engine.flying.Done()
	}
}

// handOver has another flight take the place of f. The lane is locked.
func (l *lane) handOver(f *flight) {
	l.land(f)
	f.overdue = true
	l.overdue++
	l.flights--
	l.summon()
	if f.alone {
		l.free(f)
	}
}

// end is for a flight whose goroutine makes no other.
func (l *lane) end(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.land(f) {
		l.stop()
	}
}

// stop counts a flight no longer. What waits is for another goroutine. The lane is locked.
func (l *lane) stop() {
	l.flights--
	l.summon() // first, so that close does not miss it
	l.engine.flying.Done()
}

// fly is a flight with one call, on the goroutine of its caller, which ends by the caller's context.
func (l *lane) fly(ctx context.Context, c *call) {
	defer l.end(&c.flight)
	if s := l.sendings.of(ctx, c); s != nil {
		defer s.end(context.Canceled)
		ctx = s
	}
	c.alone[0] = entry{first: c, last: c, count: 1}
	l.send(ctx, l.engine.sender, c.alone[:], c.flight.since)
}

// flush makes flights while there are batches.
func (l *lane) flush() {
	for b, f := l.take(); b != nil && l.carry(b, f); b, f = l.take() {
	}
}

// take returns the batch that is to leave next, and its flight. Without one, the goroutine ends.
func (l *lane) take() (*batch, *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coming = false
	if len(l.waiting) == 0 {
		l.stop()
		return nil, nil
	}
	b := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	l.queued -= b.calls
	l.crowded = b.calls > 1
	f := new(flight)
	l.depart(f)
	l.summon()
	return b, f
}

// carry sends b, and reports whether the goroutine may make another flight.
func (l *lane) carry(b *batch, f *flight) bool {
	exited := true // by runtime.Goexit, in a hook of the client
	defer func() {
		if exited {
			l.end(f)
		}
	}()
	deadline := b.claim()
	ctx := context.Background()
	if !deadline.IsZero() {
		// The client has longer than its callers, who may outlast their deadlines.
		limited, cancel := context.WithDeadline(ctx, deadline.Add(defaultGiven))
		defer cancel()
		defer time.AfterFunc(time.Until(deadline), func() { l.desert(f) }).Stop()
		ctx = limited
	}
	if len(b.entries) > 0 {
		l.send(ctx, l.engine.client, b.entries, f.since)
	}
	exited = false
	b.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.land(f)
}

// desert notes that nobody waits for f any longer, and so neither does close.
func (l *lane) desert(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.alone = true
	l.abandon(f)
}

// abandon frees f if nobody waits for it, and it need not count any longer. The lane is locked.
func (l *lane) abandon(f *flight) {
	switch {
	case !f.alone:
	case f.overdue:
		l.free(f)
	case l.engine.closed.Load() && slices.Contains(l.out, f):
		l.handOver(f)
	}
}

// relieve is for a caller that await has returned err, in a flight or before one. If the caller has run out of the time
// that it was given, relieve hands over the flights that took more than half of that, so that those who come next need
// not wait for them. If others have taken the time, the server is only busy.
func (l *lane) relieve(ctx context.Context, err error) {
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrOverloaded) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	late := time.Now().Add(-given(ctx) / 2)
	for i := len(l.out) - 1; i >= 0 && l.overdue < l.engine.maxOverdue; i-- {
		if f := l.out[i]; f.since.Before(late) {
			l.handOver(f)
		}
	}
}

// unknownPool is how many connections a client is taken to have that does not say.
const unknownPool = 16

// overdueOf returns how many flights to one server may be handed over and still be under way: half of the connections
// that the client may have, because each holds one. A server that hangs leaves the others to those who look whether it
// is back, and to whoever else uses the client.
func overdueOf(client Client) int {
	size, most := 0, 0
	switch c := client.(type) {
	case *redis.Client:
		size, most = c.Options().PoolSize, c.Options().MaxActiveConns
	case *redis.ClusterClient:
		size, most = c.Options().PoolSize, c.Options().MaxActiveConns
	case *redis.Ring:
		size, most = c.Options().PoolSize, c.Options().MaxActiveConns
	}
	if size <= 0 {
		size = unknownPool
	}
	if most > 0 {
		size = min(size, most)
	}
	return size / 2
}
