package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

func init() { register(nearby, "memstore size", size) }

// size compares what a key takes in memory, when there are a million. One round is enough: the machine has
// no influence on it.
func size(ctx context.Context, _ plan) (findings, error) {
	ours, err := bytesPerKey(ctx, memstoreTake)
	if err != nil {
		return findings{}, err
	}
	var rows []row
	for _, m := range memoryCompetitors {
		theirs, err := bytesPerKey(ctx, m)
		if err != nil {
			return findings{}, err
		}
		rows = append(rows, row{
			what:   fmt.Sprintf("memstore, a million keys of 15 bytes, against %s: heap per key", m.name),
			ours:   figure{ours},
			theirs: figure{theirs},
			unit:   inBytes,
			bound:  atMost(100, inBytes),
		})
	}
	return findings{rows: rows}, nil
}

func bytesPerKey(ctx context.Context, m memoryLimiter) (float64, error) {
	const keys = 1_000_000
	before := heap()
	open := m.open(ratelimit.Limit{Rate: 1, Per: time.Hour, Burst: 2}) // no bucket is full again meanwhile
	defer open.close()
	take := open.take()
	for i := range keys {
		if i%1000 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		// Made here, so that the limiter's copy is the only one that is left.
		if !take(fmt.Sprintf("member:%08d", i)) {
			return 0, fmt.Errorf("%s denied the first of 2", m.name)
		}
	}
	after := heap()
	runtime.KeepAlive(take)
	return float64(after-before) / keys, nil
}

// heap returns how many bytes the objects on the heap take, each as large as the allocator makes it. The gaps
// between them are left out: they are where the keys that this test made up were, and are used again.
func heap() int64 {
	// Twice, because the first one only puts off what a sync.Pool or a finalizer still holds.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
