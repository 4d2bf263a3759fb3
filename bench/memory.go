package main

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A memoryLimiter is a limiter that keeps limits of many keys in memory.
type memoryLimiter struct {
	name string

	// open returns a limiter with the limit l for each key.
	open func(l ratelimit.Limit) openMemory
}

// An openMemory is an open memoryLimiter.
type openMemory struct {
	// take returns a function that takes a token of a key. Each goroutine needs its own.
	take func() func(key string) bool

	close func()
}

// memoryCompetitors are registered by their files.
var memoryCompetitors []memoryLimiter

var memstoreTake = memoryLimiter{
	name: "memstore.Take",
	open: func(l ratelimit.Limit) openMemory {
		s := memstore.New(memstore.Config{MaxKeys: 2_000_000})
		limit, err := store.NewLimit(l.Rate, l.Per, l.Burst)
		if err != nil {
			panic(err) // a mistake of the comparison
		}
		return openMemory{
			take:  func() func(string) bool { return taking(s, limit) },
			close: func() { s.Close() },
		}
	},
}

// taking returns a function that takes a token of a key's bucket in s, for one goroutine.
func taking(s store.Store, limit store.Limit) func(key string) bool {
	// Reused, as in the middleware. Also as there, it shares no cache line with the values of another goroutine,
	// because each call would then wait for that line.
	own := new(struct {
		_       [128]byte
		charges [1]store.Charge
		states  [1]store.State
		_       [128]byte
	})
	own.charges[0] = store.Charge{Policy: "bench", Limit: limit, Cost: 1}
	return func(key string) bool {
		own.charges[0].Key = key
		ok, err := s.Take(context.Background(), own.charges[:], own.states[:])
		if err != nil {
			panic(fmt.Sprintf("a store in memory: %v", err)) // a store in memory does not fail
		}
		return ok
	}
}
