package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An engine answers calls from Redis. It finds the server of each call's keys, sends the waiting calls in batches,
// and hands out the replies.
type engine struct {
	client Client
	sender Client                   // runs the commands of lone callers for client; see timely
	timely bool                     // sender ends a command at the deadline of its context
	forget func(policy, key string) // drops what is cached about a bucket
	keys   keys
	choose func([]entry) script
	clock  func() time.Time
	logger *slog.Logger

	maxBatch, maxInFlight, maxQueue int
	maxOverdue                      int

	routes  routes
	bySlot  atomic.Bool // the keys of a command must share a hash slot, except in lanes that cross slots
	caution caution

	crossSlot       CrossSlot
	crossingRefused atomic.Bool // and logged

	counts   counts
	calendar calendar
	calls    sync.Pool // see newCall
	holdings holdings

	closed atomic.Bool
	flying sync.WaitGroup // what close waits for: flights, calls to be sent again, and callers of enter
}

var (
	_ store.Store         = (*engine)(nil)
	_ store.Inspector     = (*engine)(nil)
	_ store.Blocker       = (*engine)(nil)
	_ store.StatsReporter = (*engine)(nil)
)

// Take implements store.Store.
func (e *engine) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := e.take(ctx, charges, states)
	if err != nil {
		e.counts.fail(err)
	}
	return ok, err
}

func (e *engine) take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, uncharged(notSent(err))
	}
	c := e.newCall(ctx)
	for i := range charges {
		c.items = append(c.items, e.newItem(&charges[i]))
	}
	scattered := e.bySlot.Load() || e.routes.ring != nil
	if scattered { // the places of the items matter
		e.keys.name(c.items)
		if !e.together(c.items) {
			return e.takeSpread(ctx, charges, states, false)
		}
	}
	if err := e.sendAndWait(ctx, c); errors.Is(err, errSpread) {
		return e.takeSpread(ctx, charges, states, true)
	} else if err != nil {
		return false, uncharged(err)
	}
	ok := true
	for i := range charges {
		if c.unknown(i) {
			states[i] = unanswered
			continue
		}
		credits, charged := c.answer(i)
		ok = ok && (charged || charges[i].Shadow)
		charges[i].Fill(&states[i], credits, microseconds(c.rest(i)), microseconds(c.blocked(i)), charged)
	}
	if !ok && scattered && len(charges) > 1 {
		e.caution.note(c.items, 0) // the next call of these policies may be over several places
	}
	e.release(c)
	return ok, nil
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// unanswered is the state of a bucket that did not answer and did not veto the call.
var unanswered = store.State{Allowed: true, Degraded: true}

// sendAndWait sends c and waits for the answer. After an error the caller must not use c.
func (e *engine) sendAndWait(ctx context.Context, c *call) error {
	l, err := e.routes.laneOf(c)
	if err != nil {
		return err
	}
	direct, err := l.submit(ctx, c)
	if err != nil {
		return err
	}
	if direct && c.isDone() {
		// Most calls take this path. It prepares nothing else.
	} else if err := (&waiter{ctx: ctx}).await(c, l); err != nil {
		stage := c.stage.Swap(left) // before another flight may send it
		l.relieve(ctx, err)
		switch stage {
		case waiting:
			return unsent{err}
		case claimed:
			return err
		}
		for done := false; !done; done = c.received(<-c.done) { // it has got its slots, and is done at once
		}
	}
	switch {
	case c.err == errOver:
		return notSent(ctx.Err())
	case errors.Is(c.err, context.DeadlineExceeded) && lacking(ctx, c, direct):
		return l.timeoutError(ctx, starved.Since(time.Now()))
	}
	return c.err
}

// direct reports whether a caller can send its own call and still return when ctx ends.
func (e *engine) direct(ctx context.Context) bool {
	_, limited := ctx.Deadline()
	return e.timely && limited || ctx.Done() == nil
}

// close refuses new calls and waits for the accepted ones.
func (e *engine) close() {
	e.closed.Store(true)
	e.routes.each(func(l *lane) {
		l.mu.Lock() // a caller that has not seen closed has begun its flight by now
		defer l.mu.Unlock()
		for _, f := range slices.Clone(l.out) {
			l.abandon(f)
		}
	})
	e.holdings.stop()
	e.flying.Wait()
	e.holdings.release()
	e.flying.Wait()
}

// send asks the server of l for the answers to entries, and finishes them. It reports whether the server answered
// anything.
func (e *engine) send(ctx context.Context, l *lane, by Client, entries []entry) (answered bool) {
	for i := range entries {
		e.keys.name(entries[i].first.items)
	}
	if l.server.asserting != l {
		e.counts.sent(entries)
	}
	commands := e.group(l.server, entries)
	answered = len(commands) == 0 // there is nothing to ask
	for round := 0; len(commands) > 0; round++ {
		next, any := e.round(ctx, l, by, commands, round)
		answered = answered || any
		commands = e.wanted(next)
	}
	return answered
}

// round sends commands once. It returns those to send next, and whether the server answered anything.
func (e *engine) round(ctx context.Context, l *lane, by Client, commands []command, round int) (next []command, answered bool) {
	if l.claims {
		if commands = e.holdings.claim(commands); len(commands) == 0 {
			return nil, true
		}
		defer e.holdings.land(commands, l == l.server.asserting)
	}
	e.exec(ctx, by, commands)
	for i := range commands {
		answered = answered || commands[i].err == nil || isRedis(commands[i].err)
	}
	return e.handleReplies(ctx, l.server, commands, round), answered
}

// wanted returns commands without the calls whose callers have left.
func (e *engine) wanted(commands []command) []command {
	for i := range commands {
		c := &commands[i]
		c.entries = keep(c.entries, func(c *call) bool { return c.stage.Load() != left })
		for j := range c.entries {
			e.keys.name(c.entries[j].first.items) // of identical calls, another may be the first now
		}
	}
	return slices.DeleteFunc(commands, func(c command) bool { return len(c.entries) == 0 })
}

// group returns the commands for entries of l.
func (e *engine) group(l *lane, entries []entry) []command {
	commands := []command{{entries: entries}}
	if !e.bySlot.Load() {
		return commands
	}
	if !commands[0].sameSlot() {
		if l.crosses() {
			commands[0].across = true
			return commands
		}
		commands = commands[0].split()
	}
	if reach := l.reach(); reach != nil {
		commands = slices.Insert(commands, 0, *reach) // first, so that its answer counts before a caller goes on
	}
	return commands
}

// errGoexit is the error of calls if the client calls runtime.Goexit in their goroutine.
var errGoexit = errors.New("redisstore: the client, or one of its hooks, has called runtime.Goexit")

// exec sends commands by a client, in one pipeline if there are several.
func (e *engine) exec(ctx context.Context, by Client, commands []command) {
	returned := false
	defer func() {
		// A panic in Config.Clock or in a hook of the client must not end the process or the flight.
		p := recover()
		for i := range commands {
			switch {
			case p != nil:
				commands[i].err = fmt.Errorf("panic: %v", p)
			case !returned:
				commands[i].err = errGoexit
				commands[i].finish(errGoexit) // here, because the goroutine ends
			}
		}
	}()
	var batches int64
	for i := range commands {
		switch c := &commands[i]; {
		case c.reach != nil:
			c.prepareReach(ctx)
		case c.across:
			c.prepare(ctx, e.clock, takeAcross)
			batches++
		case c.general:
			c.prepare(ctx, e.clock, take)
			batches++
		default:
			c.prepare(ctx, e.clock, e.choose(c.entries))
			batches++
		}
	}
	e.counts.batches.Add(batches)
	pipeliner, ok := by.(interface{ Pipeline() redis.Pipeliner })
	if len(commands) == 1 || !ok {
		for i := range commands {
			commands[i].err = by.Process(ctx, commands[i].sent)
		}
		returned = true
		return
	}
	pipe := pipeliner.Pipeline()
	for i := range commands {
		_ = pipe.Process(ctx, commands[i].sent) // only queues the command
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range commands {
		commands[i].err = commands[i].sent.Err()
	}
	returned = true
}

// handleReplies finishes the answered entries. It returns the commands to send next, for those that the server has not
// carried out but would carry out now.
func (e *engine) handleReplies(ctx context.Context, l *lane, commands []command, round int) (next []command) {
	var loading [scripts]bool
	for i := range commands {
		switch c := &commands[i]; {
		case c.reach != nil:
			l.reached(c)
		case c.err == nil && c.early() != 0:
			if again := (command{entries: c.entries, across: c.across, general: c.general, retried: c.retried, renewed: c.renewed}); e.renew(&again, c.early()) {
				next = append(next, again)
			}
		case c.err == nil:
			e.routes.answered()
			next = append(next, c.answer(&e.holdings)...)
		case c.stale && isRedis(c.err):
			next = append(next, command{entries: c.entries, eval: c.eval, across: c.across, general: c.general, retried: true})
		case redis.HasErrorPrefix(c.err, "NOSCRIPT") && !c.eval:
			// EVAL also loads the script, so the commands after it find it, unless the server forgets the script
			// again.
			next = append(next, command{entries: c.entries, eval: !loading[c.script] || round > 1, across: c.across, general: c.general, retried: c.retried})
			if next[len(next)-1].eval {
				e.counts.loads.Add(1)
			}
			loading[c.script] = true
		case c.across && isRedis(c.err) && notKnown(c.err):
			l.refuseCrossing(c.err.Error())
			next = append(next, c.split()...)
		case c.across && e.routes.notWhole(c.err):
			next = append(next, c.split()...)
		case redis.HasErrorPrefix(c.err, "CROSSSLOT") && !c.sameSlot():
			if e.bySlot.CompareAndSwap(false, true) {
				e.logger.Warn("redisstore: Redis requires the keys of a command in one hash slot: from now on each slot is sent a separate call", "error", c.err)
			}
			next = append(next, c.split()...)
		case e.routes.moving(c.err) && len(c.entries) > 1:
			// The error may concern only one entry, or only all entries together.
			e.counts.redirects.Add(1)
			next = append(next, c.apart()...)
		case e.routes.moving(c.err) && ctx.Err() == nil:
			e.counts.redirects.Add(1)
			e.postpone(c.entries, c.err)
		case c.script.alone() && errors.Is(c.err, redis.Nil): // nothing was written
			next = append(next, command{entries: c.entries, general: true, retried: c.retried})
		case redis.HasErrorPrefix(c.err, "the key holds no bucket"):
			c.finish(errNoBucket)
		default:
			if !isRedis(c.err) {
				e.routes.failed(ctx)
			}
			err := failure(ctx, c.err)
			if c.claims != nil && permissionOf(c.err).lacks() {
				err = fmt.Errorf("%w: the user of Redis needs the rights +hgetall +hdel, and those of buckets, on the keys %s:*", err, e.keys.prefix)
			}
			c.finish(err)
		}
	}
	return next
}

const (
	// patience is how often a call is sent while its slot moves. Each time, the client also follows redirects.
	patience = 20

	// pause is the time between two of these.
	pause = 5 * time.Millisecond
)

// postpone sends the calls of a command again after a pause. Other calls may overtake them.
func (e *engine) postpone(entries []entry, err error) {
	entries = slices.Clone(entries) // the batch will be reused
	e.flying.Add(1)
	time.AfterFunc(pause, func() {
		defer e.flying.Done()
		for i := range entries {
			e.requeueAll(&entries[i], err)
		}
	})
}

// requeueAll queues the calls of an entry again. It finishes those that were sent too often with err.
func (e *engine) requeueAll(entry *entry, err error) {
	for c, next := entry.first, (*call)(nil); c != nil; c = next {
		next, c.next = c.next, nil
		c.stage.CompareAndSwap(claimed, waiting)
		if c.tries++; c.tries == patience {
			c.finish(nil, 0, fmt.Errorf("redisstore: %w", err))
			continue
		}
		l, err := e.routes.laneOf(c)
		if err != nil {
			c.finish(nil, 0, err)
			continue
		}
		l.requeue(c)
	}
}
