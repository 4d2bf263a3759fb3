package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

func TestCrowdDividesWhatServersUsedByTheCalls(t *testing.T) {
	const cpu, script = 10 * time.Microsecond, 4 * time.Microsecond // of each call
	var calls atomic.Int64
	c, err := newCrowd("counted", 2, true, func(int) (call, error) {
		return func(context.Context, int) (bool, error) {
			time.Sleep(10 * time.Microsecond)
			calls.Add(1)
			return true, nil
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.usage = func(context.Context) (redisUsage, error) {
		n := time.Duration(calls.Load())
		return redisUsage{time.Hour + n*cpu, time.Hour + n*script}, nil
	}
	p := plan{rounds: 3, time: 4 * time.Millisecond}
	if err := measureCrowds(t.Context(), p, c); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]figure{"rate": c.rate, "p50": c.p50, "p99": c.p99, "CPU of Redis": c.redis, "in scripts": c.script, "CPU of Go": c.own, "allocations": c.allocs} {
		if len(f) != p.rounds {
			t.Errorf("%s has %d values for %d rounds", name, len(f), p.rounds)
		}
	}
	for round := range p.rounds {
		if c.redis[round] != float64(cpu) || c.script[round] != float64(script) {
			t.Errorf("round %d: %v ns of CPU, %v ns in scripts, want %v and %v", round, c.redis[round], c.script[round], cpu, script)
		}
		if c.own[round] <= 0 {
			t.Errorf("round %d: calls took no CPU of this process", round)
		}
	}
}

func TestCrowdFailsIfCallsTurnOutOtherwise(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		c, err := newCrowd("otherwise", 1, wanted, func(int) (call, error) {
			return func(context.Context, int) (bool, error) { return !wanted, nil }, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := measureCrowds(t.Context(), plan{rounds: 1, time: 2 * time.Millisecond}, c); err == nil {
			t.Errorf("no error, and every call was allowed: %v", !wanted)
		}
	}
}
