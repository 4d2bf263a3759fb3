package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

func init() {
	// No bucket becomes full again. Otherwise a limiter would gain time by forgetting it.
	register(nearby, "memstore.Take allowed", takes("all allowed", ratelimit.Limit{Rate: 1, Per: time.Second, Burst: 1_000_000_000}, [2]float64{1, 1}))
	register(nearby, "memstore.Take denied", takes("nearly all denied", ratelimit.Limit{Rate: 1, Per: time.Hour, Burst: 1}, [2]float64{0, 0.01}))
}

// takes compares the time of one decision in memory.
func takes(how string, l ratelimit.Limit, allowed [2]float64) func(context.Context, plan) (findings, error) {
	return func(ctx context.Context, p plan) (findings, error) {
		keys := make([]string, 10_000)
		for i := range keys {
			keys[i] = fmt.Sprintf("member:%08d", i)
		}
		var subjects []*subject
		for _, m := range append([]memoryLimiter{memstoreTake}, memoryCompetitors...) {
			open := m.open(l)
			defer open.close()
			fill := open.take() // the creation of the buckets is not measured
			for _, key := range keys {
				fill(key)
			}
			subjects = append(subjects, newSubject(m.name, allowed, func(id int) worker {
				return taker(open.take(), keys, uint64(id))
			}))
		}
		if err := measureParallel(ctx, p, subjects...); err != nil {
			return findings{}, err
		}
		ours := subjects[0]
		var rows []row
		for _, theirs := range subjects[1:] {
			what := fmt.Sprintf("%s, 10,000 keys, %s, against %s: ", ours.name, how, theirs.name)
			rows = append(rows,
				row{what + "time", ours.ns, theirs.ns, nanoseconds, atMostTimes(0.75)},
				row{what + "allocations", ours.allocs, theirs.allocs, count, atMost(0, count)},
			)
		}
		return findings{rows: rows}, nil
	}
}

// taker returns a worker that takes a token of a random key at each operation.
func taker(take func(string) bool, keys []string, seed uint64) worker {
	// Cheap, equal for all sides, and not on a cache line with the values of another goroutine.
	own := new(struct {
		_      [128]byte
		random rand.PCG
		_      [128]byte
	})
	random := &own.random
	random.Seed(seed, 0)
	return func(n int) (allowed int) {
		for range n {
			if take(keys[random.Uint64()>>40*uint64(len(keys))>>24]) {
				allowed++
			}
		}
		return allowed
	}
}
