package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// growKeysInMemory measures growing numbers of keys. Each key has a bucket in a memstore.
func growKeysInMemory(ctx context.Context, p growthPlan) (growthTable, error) {
	callers := runtime.GOMAXPROCS(0)
	t := growthTable{
		title: "Keys in memory",
		note: fmt.Sprintf("Limiter.Take on memstore, %d callers with one context for many calls, one policy, keys of 15 bytes. "+
			"The heap for each key has the key in it.", callers),
		columns: []column{sizeColumn("keys"), decisionsColumn, p99Column, ownColumn, extraColumn("heap for each key", 0, inBytes)},
	}
	for _, keys := range p.upTo(100_000, 1000, 10_000, 100_000, 1_000_000, 10_000_000) {
		row, err := inMemory(ctx, p.plan, keys, callers)
		if err != nil {
			return t, err
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

// inMemory measures one number of keys. It releases all memory afterwards.
func inMemory(ctx context.Context, p plan, keys, callers int) (growthRow, error) {
	before := heap()
	buckets := memstore.New(memstore.Config{MaxKeys: 2 * keys}) // evicts nothing
	defer buckets.Close()
	limiter, err := ratelimit.New(ratelimit.Config{Store: buckets})
	if err != nil {
		return growthRow{}, err
	}
	policy := ratelimit.Policy{Name: "bench", Limit: growthLimits(1)[0]}
	take := func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Take(ctx, policy, key, 1)
		return result.Allowed, err
	}
	for i := range keys {
		if err := ctx.Err(); err != nil {
			return growthRow{}, err
		}
		// The key is made here, so that only the store's copy stays in memory.
		if ok, err := take(ctx, memberKey(i)); err != nil || !ok {
			return growthRow{}, fmt.Errorf("the first token of key %d was denied: %v", i, err)
		}
	}
	perKey := float64(heap()-before) / float64(keys)

	// A part of many keys is enough to have few of them in the caches of the processor.
	random := rand.New(rand.NewPCG(1, 0))
	draws := make([]string, 1<<18)
	for i := range draws {
		draws[i] = memberKey(random.IntN(keys))
	}
	w := workload{callers: callers, allowed: true}
	c, err := w.crowd(namedRedis{fmt.Sprint(keys), openRedis{take: forAll(take)}}, draws)
	if err != nil {
		return growthRow{}, err
	}
	if err := measureCrowds(ctx, p, c); err != nil {
		return growthRow{}, err
	}
	return growthRow{size: keys, extra: []float64{perKey}, side: c.side}, nil
}
