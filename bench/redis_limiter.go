package main

import (
	"context"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
)

// A redisLimiter is a way to keep limits of many keys in Redis.
type redisLimiter struct {
	name string

	// takesPart reports whether it is a competitor in w. It is nil for ours.
	takesPart func(w workload) bool

	// open returns a limiter on d that allows each key limits, all of them at once. Those that know only one limit
	// take the first.
	open openFunc
}

type openFunc func(ctx context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error)

// An openRedis is a redisLimiter in use.
type openRedis struct {
	// take returns a function that takes a token of a key. It is for one goroutine; others have their own.
	take func() takeFunc

	close func()
}

// A takeFunc takes a token of a key.
type takeFunc func(ctx context.Context, key string) (bool, error)

// forAll returns a function that gives the same f to every goroutine.
func forAll(f takeFunc) func() takeFunc {
	return func() takeFunc { return f }
}

// redisCompetitors are added by their files.
var redisCompetitors []redisLimiter

// limiters returns who takes part, us first.
func (w workload) limiters() []redisLimiter {
	limiters := []redisLimiter{w.ours}
	for _, l := range redisCompetitors {
		if l.takesPart(w) {
			limiters = append(limiters, l)
		}
	}
	return limiters
}

// in returns a takesPart for the workloads that are named.
func in(names ...string) func(workload) bool {
	return func(w workload) bool { return slices.Contains(names, w.name) }
}
