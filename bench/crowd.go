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

// A crowd is one side of a comparison that many call at once, each of them again as soon as it is answered.
type crowd struct {
	side
	members []*member
	allowed bool                                      // what every call must turn out
	usage   func(context.Context) (redisUsage, error) // of Redis; nil if that is not measured

	time  time.Duration // of the round under way, as what follows
	spent sideSpent
}

// A member is one of the callers of a crowd.
type member struct {
	_         [128]byte // not on a cache line with another's
	call      call
	n         int       // of the next call
	latencies histogram // of the round under way, as what follows
	calls     int64
	allowed   int64
	late      int64 // ended by a deadline, and not counted among calls
	err       error
	_         [128]byte
}

// A call carries out the nth operation of a caller and returns whether it was allowed.
type call func(ctx context.Context, n int) (bool, error)

// newCrowd returns a crowd of callers made by next, one by one.
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

// measureCrowds measures the crowds in turn. Turns are long: in short ones the callers would mostly be
// beginning and ending together.
func measureCrowds(ctx context.Context, p plan, crowds ...*crowd) error {
	const turns = 2 // of each in a round; an even number, for alternate
	heap := make([]byte, heapOfService)
	defer runtime.KeepAlive(heap)
	var measures []func() error
	for _, c := range crowds {
		// Once without counting it: connections, buffers and buckets are made then.
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

// turn lets all members call for some time.
func (c *crowd) turn(ctx context.Context, d time.Duration) error {
	runtime.GC() // of what the others left
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

// run lets all members call until d is over, and waits for the calls that are then under way.
func (c *crowd) run(ctx context.Context, d time.Duration) {
	var (
		done           atomic.Bool
		ready, working sync.WaitGroup
		start          = make(chan struct{})
	)
	ready.Add(len(c.members))
	for _, m := range c.members {
		working.Go(func() {
			// One for all calls of the caller in this turn. It can be cancelled and has a deadline, as a
			// request's in a server: clients take another way without. Where each call has its own, this is
			// their parent.
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

// work calls until it is done, or a call fails. The end of a call is the beginning of the next, and time.Since
// takes half as long as time.Now: some decisions take no longer than the clock.
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

// conclude adds what the round gave to the figures.
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
