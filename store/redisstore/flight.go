package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A flight is one trip to the server and back, with a batch or with a single call. A goroutine makes one flight after
// another while batches wait. A caller that finds no flight under way sends its own call.
//
// A connection may be dead without a sign of it. So a flight that takes too long for one of its callers is handed
// over: it continues for its own callers, and another flight may begin. See relieve.
//
// The lane's mutex guards the fields.
type flight struct {
	since   time.Time // when the flight began
	overdue bool      // it was handed over
	alone   bool      // none of its callers waits any longer
	freed   bool      // close does not wait for it
}

// begin counts a flight. The lane is locked.
func (l *lane) begin() {
	l.flights++
	l.engine.flying.Add(1)
}

// depart notes that f, a counted flight, leaves. The lane is locked.
func (l *lane) depart(f *flight) {
	*f = flight{since: time.Now()}
	l.out = append(l.out, f)
}

// land notes that f is back, and reports whether it is still counted. The lane is locked.
func (l *lane) land(f *flight) bool {
	if !f.overdue {
		l.out = slices.DeleteFunc(l.out, func(other *flight) bool { return other == f })
		return true
	}
	l.overdue--
	l.free(f)
	return false
}

// free lets close return without waiting for f, which was handed over. The lane is locked.
func (l *lane) free(f *flight) {
	if !f.freed {
		f.freed = true
		l.engine.flying.Done()
	}
}

// handOver stops counting f, so that another flight may begin. The lane is locked.
func (l *lane) handOver(f *flight) {
	l.land(f)
	f.overdue = true
	l.overdue++
	l.flights--
	l.startFlight()
	if f.alone {
		l.free(f)
	}
}

// end is for a flight whose goroutine makes no further flight.
func (l *lane) end(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.land(f) {
		l.stop()
	}
}

// stop ends the counting of a flight. Another goroutine sends the waiting calls. The lane is locked.
func (l *lane) stop() {
	l.flights--
	l.startFlight() // first, so that close does not miss it
	l.engine.flying.Done()
}

// fly sends a call on the goroutine of its caller. The flight ends with the caller's context.
func (l *lane) fly(ctx context.Context, c *call) {
	defer l.end(&c.flight)
	if s := l.contexts.forCall(ctx, c); s != nil {
		defer s.end(context.Canceled)
		ctx = s
	}
	c.alone[0] = entry{first: c, last: c, count: 1}
	l.engine.counts.direct.Add(1)
	l.send(ctx, l.engine.sender, c.alone[:], c.flight.since)
}

// flush makes flights as long as batches wait.
func (l *lane) flush() {
	for b, f := l.take(); b != nil && l.carry(b, f); b, f = l.take() {
	}
}

// take returns the next batch and its flight. It returns nil if the goroutine must end.
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
	l.startFlight()
	return b, f
}

// carry sends b, and reports whether the goroutine may make another flight.
func (l *lane) carry(b *batch, f *flight) bool {
	exited := true // stays true if a hook of the client calls runtime.Goexit
	defer func() {
		if exited {
			l.end(f)
		}
	}()
	deadline := b.claim()
	ctx := context.Background()
	if !deadline.IsZero() {
		// The client gets more time than its callers, because they may wait beyond their deadlines. It does not send calls
		// whose callers have left: see guard.
		limited, cancel := context.WithDeadline(ctx, deadline.Add(defaultGiven))
		defer cancel()
		defer time.AfterFunc(time.Until(deadline), func() { l.abandonFlight(f) }).Stop()
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

// abandonFlight notes that no caller waits for f any longer. Then close does not wait for it either.
func (l *lane) abandonFlight(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.alone = true
	l.abandon(f)
}

// abandon frees f if no caller waits for it and it need not count any longer. The lane is locked.
func (l *lane) abandon(f *flight) {
	switch {
	case !f.alone:
	case f.overdue:
		l.free(f)
	case l.engine.closed.Load() && slices.Contains(l.out, f):
		l.handOver(f)
	}
}

// relieve is for a caller that got err from await. If the caller has used up its own time, relieve hands over the
// flights that took more than half of that time. The next callers then need not wait for them. If other calls used up
// the time, the server is only busy.
func (l *lane) relieve(ctx context.Context, err error) {
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrOverloaded) {
		return
	}
	l.relieveSince(time.Now().Add(-given(ctx) / 2))
}

// relieveSince hands over the flights that began before latest.
func (l *lane) relieveSince(latest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.out) - 1; i >= 0 && l.overdue < l.engine.maxOverdue; i-- {
		if f := l.out[i]; f.since.Before(latest) {
			l.handOver(f)
		}
	}
}

// unknownPool is the assumed pool size of a client that does not report it.
const unknownPool = 16

// overdueOf returns how many flights to one server may be handed over and still be under way. Each holds a
// connection, so it is half of the client's pool. While a server hangs, the other half is free for calls that check
// whether it is back, and for other users of the client.
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
