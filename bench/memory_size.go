package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

func init() { register(nearby, "memstore size", size) }

// size compares the memory for each of a million keys. One round is enough, because the speed of the machine does not
// matter.
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
	open := m.open(ratelimit.Limit{Rate: 1, Per: time.Hour, Burst: 2}) // so slow that no bucket becomes full
	defer open.close()
	take := open.take()
	for i := range keys {
		if i%1000 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		// The key is made here, so that only the limiter's copy stays in memory.
		if !take(fmt.Sprintf("member:%08d", i)) {
			return 0, fmt.Errorf("%s denied the first of 2", m.name)
		}
	}
	after := heap()
	runtime.KeepAlive(take)
	return float64(after-before) / keys, nil
}

// heap returns the size of the objects on the heap, as the allocator rounds it. The gaps between them do not count:
// they are from the keys of this test, and are used again.
func heap() int64 {
	// Twice, because after the first one, a sync.Pool or a finalizer can still hold objects.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
