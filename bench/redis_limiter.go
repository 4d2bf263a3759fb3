package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A redisLimiter is a way to keep limits of many keys in Redis.
type redisLimiter struct {
	name string

	// in are the names of the comparisons that it takes part in.
	in []string

	// open returns a limiter on server that allows each key l.
	open func(ctx context.Context, server *redisServer, l ratelimit.Limit) (openRedis, error)
}

// An openRedis is a redisLimiter in use.
type openRedis struct {
	// take returns a function that takes a token of a key. It is for one goroutine; others have their own.
	take func() func(ctx context.Context, key string) (bool, error)

	close func()
}

// redisCompetitors are added by their files.
var redisCompetitors []redisLimiter

// redisLimitersIn returns who takes part in a comparison with us, who are the first.
func redisLimitersIn(comparison string, ours redisLimiter) []redisLimiter {
	limiters := []redisLimiter{ours}
	for _, l := range redisCompetitors {
		if slices.Contains(l.in, comparison) {
			limiters = append(limiters, l)
		}
	}
	return limiters
}

var redisstoreTake = redisLimiter{
	name: "redisstore.Take",
	open: func(_ context.Context, server *redisServer, l ratelimit.Limit) (openRedis, error) {
		limit, err := compile(l)
		if err != nil {
			return openRedis{}, err
		}
		client := server.client()
		s := redisstore.New(client, redisstore.Config{})
		return openRedis{
			take: func() func(context.Context, string) (bool, error) { return storeTake(s, limit) },
			close: func() {
				if c, ok := any(s).(io.Closer); ok {
					c.Close()
				}
				client.Close()
			},
		}, nil
	},
}

// storeTake returns a function that takes a token of a key in s, for one goroutine.
func storeTake(s store.Store, limit store.Limit) func(context.Context, string) (bool, error) {
	// Reused, as the middleware does, and like there not on a cache line with another goroutine's, which would
	// take it away at each call.
	own := new(struct {
		_       [128]byte
		charges [1]store.Charge
		states  [1]store.State
		_       [128]byte
	})
	own.charges[0] = store.Charge{Policy: "bench", Limit: limit, Cost: 1}
	return func(ctx context.Context, key string) (bool, error) {
		own.charges[0].Key = key
		return s.Take(ctx, own.charges[:], own.states[:])
	}
}

// compile returns l as the stores take it.
func compile(l ratelimit.Limit) (store.Limit, error) {
	limit, err := store.NewLimit(l.Rate, l.Per, l.Burst)
	if err != nil {
		return store.Limit{}, fmt.Errorf("limit of the comparison: %w", err)
	}
	return limit, nil
}
