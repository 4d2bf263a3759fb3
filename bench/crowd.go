package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A crowd is one side of a comparison with many concurrent callers. Each caller calls again as soon as it has an
// answer.
type crowd struct {
	side
	members []*member
	allowed bool                                      // the expected result of every call
	usage   func(context.Context) (redisUsage, error) // of Redis; nil if not measured

	time  time.Duration // of the current round, as the fields below
	spent sideSpent
}

// A member is one of the callers of a crowd.
type member struct {
	_         [128]byte // so that members do not share a cache line
	call      call
	n         int       // the number of the next call
	latencies histogram // of the current round, as the fields below
	calls     int64
	allowed   int64
	late      int64 // calls that ended at a deadline, not counted in calls
	err       error
	_         [128]byte
}

// A call carries out the nth operation of a caller and returns whether it was allowed.
type call func(ctx context.Context, n int) (bool, error)

// newCrowd returns a crowd of callers, which next creates.
func newCrowd(name string, callers int, allowed bool, next func(id int) (call, error)) (*crowd, error) {
	c := &crowd{side: side{name: name}, allowed: allowed}
	for id := range callers {
		call, err := next(id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c.members = append(c.members, &member{call: call})
	}
	return c, nil
}

// measureCrowds measures the crowds in turn. Turns are long, because the start and the end of a turn are not typical.
func measureCrowds(ctx context.Context, p plan, crowds ...*crowd) error {
	const turns = 2 // for each crowd in a round; an even number, for alternate
	heap := make([]byte, heapOfService)
	defer runtime.KeepAlive(heap)
	var measures []func() error
	for _, c := range crowds {
		// The first turn does not count: it makes connections, buffers and buckets.
		if err := errors.Join(c.turn(ctx, p.time/turns), c.conclude()); err != nil {
			return err
		}
		c.sideFigures = sideFigures{}
		measures = append(measures, func() error { return c.turn(ctx, p.time/turns) })
	}
	return alternate(ctx, p.rounds, func() error {
		if err := alternate(ctx, turns, measures...); err != nil {
			return err
		}
		for _, c := range crowds {
			if err := c.conclude(); err != nil {
				return err
			}
		}
		return nil
	})
}

// turn lets all members call for the time d.
func (c *crowd) turn(ctx context.Context, d time.Duration) error {
	runtime.GC() // the garbage of the other crowds
	before, err := c.used(ctx)
	if err != nil {
		return err
	}
	c.run(ctx, d)
	after, err := c.used(ctx)
	c.spent.redis = c.spent.redis.plus(after.minus(before))
	return err
}

func (c *crowd) used(ctx context.Context) (redisUsage, error) {
	if c.usage == nil {
		return redisUsage{}, nil
	}
	return c.usage(ctx)
}

// run lets all members call until d is over, and waits for the remaining calls.
func (c *crowd) run(ctx context.Context, d time.Duration) {
	var (
		done           atomic.Bool
		ready, working sync.WaitGroup
		start          = make(chan struct{})
	)
	ready.Add(len(c.members))
	for _, m := range c.members {
		working.Go(func() {
			// One context for all calls of the caller in this turn. Like the context of a request in a server it can
			// be cancelled and has a deadline, because clients take a shorter path for other contexts. If each call
			// has a separate context, this is its parent.
			ctx, cancel := context.WithTimeout(ctx, d+2*callTimeout)
			defer cancel()
			ready.Done()
			<-start
			m.work(ctx, &done)
		})
	}
	ready.Wait()
	before := ownUsage()
	timer := time.AfterFunc(d, func() { done.Store(true) })
	defer timer.Stop()
	began := time.Now()
	close(start)
	working.Wait()
	c.time += time.Since(began)
	c.spent.own.addSince(before)
}

// work calls until done is set or a call fails. The end time of a call is the start time of the next. time.Since
// takes half as long as time.Now, and some decisions take no longer than reading the clock.
func (m *member) work(ctx context.Context, done *atomic.Bool) {
	start, last := time.Now(), time.Duration(0)
	for !done.Load() {
		ok, err := m.call(ctx, m.n)
		m.n++
		now := time.Since(start)
		m.latencies.add(now - last)
		last = now
		switch {
		case err == nil:
			m.calls++
			if ok {
				m.allowed++
			}
		case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
			m.late++
		default:
			m.err = err
			return
		}
	}
}

// conclude adds the results of the round to the figures.
func (c *crowd) conclude() error {
	var latencies histogram
	var calls, allowed, late int64
	for _, m := range c.members {
		if m.err != nil {
			return fmt.Errorf("%s: %w", c.name, m.err)
		}
		latencies.merge(&m.latencies)
		calls, allowed, late = calls+m.calls, allowed+m.allowed, late+m.late
		m.latencies, m.calls, m.allowed, m.late = histogram{}, 0, 0, 0
	}
	if late*100 > calls {
		return fmt.Errorf("%s: %d calls ended by their deadline, %d by themselves: must be below 1 %%", c.name, late, calls)
	}
	if refused := calls - allowed; c.allowed && refused > 0 {
		return fmt.Errorf("%s: %d of %d calls were refused: must be none", c.name, refused, calls)
	}
	if !c.allowed && allowed > 0 {
		return fmt.Errorf("%s: %d of %d calls were allowed: must be none", c.name, allowed, calls)
	}
	n := float64(calls)
	c.rate = append(c.rate, n/c.time.Seconds())
	c.p50 = append(c.p50, latencies.quantile(0.5))
	c.p99 = append(c.p99, latencies.quantile(0.99))
	c.sideFigures.conclude(c.spent, n)
	c.time, c.spent = 0, sideSpent{}
	return nil
}
