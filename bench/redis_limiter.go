package main

import (
	"context"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
)

// A redisLimiter is a limiter that keeps limits of many keys in Redis.
type redisLimiter struct {
	name string

	// takesPart reports whether a competitor takes part in w. It is nil for this module's limiters.
	takesPart func(w workload) bool

	// open returns a limiter on d with all of limits for each key. Limiters that support only one limit use the
	// first.
	open openFunc
}

type openFunc func(ctx context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error)

// An openRedis is an open redisLimiter.
type openRedis struct {
	// take returns a function that takes a token of a key. Each goroutine needs its own.
	take func() takeFunc

	close func()
}

// A takeFunc takes a token of a key.
type takeFunc func(ctx context.Context, key string) (bool, error)

// forAll returns a function that gives the same f to every goroutine.
func forAll(f takeFunc) func() takeFunc {
	return func() takeFunc { return f }
}

// redisCompetitors are registered by their files.
var redisCompetitors []redisLimiter

// limiters returns the limiters that take part, this module's first.
func (w workload) limiters() []redisLimiter {
	limiters := []redisLimiter{w.ours}
	for _, l := range redisCompetitors {
		if l.takesPart(w) {
			limiters = append(limiters, l)
		}
	}
	return limiters
}

// in returns a takesPart for the workloads with these names.
func in(names ...string) func(workload) bool {
	return func(w workload) bool { return slices.Contains(names, w.name) }
}
