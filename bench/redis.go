package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// uniform1 is the name of the comparison, by which competitors choose it.
const uniform1 = "redisstore 1 caller"

func init() { register(uniform1, oneCaller) }

// oneCaller compares how long a single caller waits for a decision in Redis, and what that costs Redis.
func oneCaller(ctx context.Context, p plan) (findings, error) {
	server, err := startRedis(ctx)
	if err != nil {
		return findings{}, err
	}
	defer server.stop()

	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("member:%08d", i)
	}
	var callers []*caller
	for _, l := range redisLimitersIn(uniform1, redisstoreTake) {
		open, err := l.open(ctx, server, endless)
		if err != nil {
			return findings{}, fmt.Errorf("%s: %w", l.name, err)
		}
		defer open.close()
		c := &caller{name: l.name, take: open.take(), keys: keys, server: server}
		for _, key := range keys {
			if err := c.call(ctx, key); err != nil {
				return findings{}, err
			}
		}
		callers = append(callers, c)
	}
	if err := alternate(ctx, p.rounds, func() error { return round(ctx, p, callers) }); err != nil {
		return findings{}, err
	}

	ours := callers[0]
	var rows []row
	for _, theirs := range callers[1:] {
		what := fmt.Sprintf("%s, 10,000 keys, 1 caller, against %s: ", ours.name, theirs.name)
		rows = append(rows,
			row{what: what + "decisions", ours: ours.rate, theirs: theirs.rate, unit: perSecond},
			row{what + "time, p50", ours.p50, theirs.p50, duration, atMostTimes(1.1)},
			row{what: what + "time, p99", ours: ours.p99, theirs: theirs.p99, unit: duration},
			row{what: what + "CPU of Redis", ours: ours.cpu, theirs: theirs.cpu, unit: duration},
			row{what: what + "of it in the script", ours: ours.script, theirs: theirs.script, unit: duration},
			row{what: what + "allocations", ours: ours.allocs, theirs: theirs.allocs, unit: count},
		)
	}
	return findings{rows: rows}, nil
}

// A caller is one side of a comparison on Redis, which waits most of the time.
type caller struct {
	name   string
	take   func(context.Context, string) (bool, error)
	keys   []string
	server *redisServer

	latencies []float64 // of the round under way, as what follows
	used      redisUsage
	mallocs   uint64

	rate        figure // calls a second
	p50, p99    figure
	cpu, script figure // of Redis, a call
	allocs      figure // a call
}

// round measures the callers in small blocks in turn, so that a disturbance of less than a round hits all
// alike.
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
		c.conclude()
	}
	return nil
}

// block makes some calls, each for a random key.
func (c *caller) block(ctx context.Context) error {
	const calls = 500
	before, err := c.server.usage(ctx)
	if err != nil {
		return err
	}
	var memBefore, memAfter runtime.MemStats
	runtime.ReadMemStats(&memBefore)
	for range calls {
		key := c.keys[rand.IntN(len(c.keys))]
		start := time.Now()
		if err := c.call(ctx, key); err != nil {
			return err
		}
		c.latencies = append(c.latencies, float64(time.Since(start)))
	}
	runtime.ReadMemStats(&memAfter)
	after, err := c.server.usage(ctx)
	if err != nil {
		return err
	}
	c.used.cpu += after.cpu - before.cpu
	c.used.script += after.script - before.script
	c.mallocs += memAfter.Mallocs - memBefore.Mallocs
	return nil
}

// call takes a token with the default timeout of the middleware. To run into that is no error: it counts
// by the time it takes.
func (c *caller) call(ctx context.Context, key string) error {
	timed, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	ok, err := c.take(timed, key)
	if err == nil && !ok {
		err = errors.New("denied")
	}
	if err != nil && timed.Err() == nil || ctx.Err() != nil {
		return fmt.Errorf("%s: %s: %w", c.name, key, cmp.Or(err, ctx.Err()))
	}
	return nil
}

// conclude adds what the round gave to the figures.
func (c *caller) conclude() {
	slices.Sort(c.latencies)
	n := float64(len(c.latencies))
	var waited float64
	for _, latency := range c.latencies {
		waited += latency
	}
	c.rate = append(c.rate, n*float64(time.Second)/waited)
	c.p50 = append(c.p50, quantile(c.latencies, 0.5))
	c.p99 = append(c.p99, quantile(c.latencies, 0.99))
	c.cpu = append(c.cpu, float64(c.used.cpu)/n)
	c.script = append(c.script, float64(c.used.script)/n)
	c.allocs = append(c.allocs, float64(c.mallocs)/n)
	c.latencies, c.used, c.mallocs = c.latencies[:0], redisUsage{}, 0
}
