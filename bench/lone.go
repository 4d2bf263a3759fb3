package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// measureLone measures one caller of each limiter. The limiters take turns.
func (w workload) measureLone(ctx context.Context, p plan, d *deployment, opened []namedRedis, draws []string) ([]side, error) {
	var callers []*caller
	for _, open := range opened {
		callers = append(callers, &caller{
			side:  side{name: open.name},
			take:  open.take(),
			draws: draws,
			usage: d.usage,
		})
	}
	// It has a deadline, as in a crowd.
	limited, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if err := alternate(ctx, p.rounds, func() error { return round(limited, p, callers) }); err != nil {
		return nil, err
	}
	var sides []side
	for _, c := range callers {
		sides = append(sides, c.side)
	}
	return sides, nil
}

// A caller is one side of a comparison on Redis. It waits most of the time.
type caller struct {
	take  takeFunc
	draws []string
	usage func(context.Context) (redisUsage, error)

	latencies []float64 // of the current round, as the fields below
	late      int
	spent     sideSpent

	side
}

// round measures the callers in turn, in small blocks. So a short disturbance affects all callers alike.
func round(ctx context.Context, p plan, callers []*caller) error {
	for start := time.Now(); time.Since(start) < p.time*time.Duration(len(callers)); {
		blocks := make([]func() error, len(callers))
		for i, c := range callers {
			blocks[i] = func() error { return c.block(ctx) }
		}
		if err := alternate(ctx, 2, blocks...); err != nil {
			return err
		}
	}
	for _, c := range callers {
		if err := c.conclude(); err != nil {
			return err
		}
	}
	return nil
}

// block makes some calls, each for a random key.
func (c *caller) block(ctx context.Context) error {
	const calls = 500
	before, err := c.usage(ctx)
	if err != nil {
		return err
	}
	ownBefore := ownUsage()
	for range calls {
		key := c.draws[rand.IntN(len(c.draws))]
		start := time.Now()
		if err := c.call(ctx, key); err != nil {
			return err
		}
		c.latencies = append(c.latencies, float64(time.Since(start)))
	}
	c.spent.own.addSince(ownBefore)
	after, err := c.usage(ctx)
	c.spent.redis = c.spent.redis.plus(after.minus(before))
	return err
}

// call takes a token. A call that ends at its deadline counts with the time it took.
func (c *caller) call(ctx context.Context, key string) error {
	ok, err := c.take(ctx, key)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		c.late++
		return nil
	case err == nil && !ok:
		err = errors.New("denied")
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", c.name, key, err)
	}
	return nil
}

// conclude adds the results of the round to the figures.
func (c *caller) conclude() error {
	if c.late*100 > len(c.latencies) {
		return fmt.Errorf("%s: %d of %d calls ended by their deadline: must be below 1 %%", c.name, c.late, len(c.latencies))
	}
	slices.Sort(c.latencies)
	n := float64(len(c.latencies))
	var waited float64
	for _, latency := range c.latencies {
		waited += latency
	}
	c.rate = append(c.rate, n*float64(time.Second)/waited)
	c.p50 = append(c.p50, quantile(c.latencies, 0.5))
	c.p99 = append(c.p99, quantile(c.latencies, 0.99))
	c.sideFigures.conclude(c.spent, n)
	c.latencies, c.late, c.spent = c.latencies[:0], 0, sideSpent{}
	return nil
}
