package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// growKeysInRedis measures growing numbers of keys. Each key has a bucket in Redis.
func growKeysInRedis(ctx context.Context, p growthPlan) (growthTable, error) {
	t := growthTable{
		title: "Keys in Redis",
		note: fmt.Sprintf("%s callers, one policy, one server for each line. MEMORY USAGE leaves out the tables that Redis finds keys "+
			"and their TTLs in. The last column has all that is gone after FLUSHALL.", thousands(growthCallers)),
		columns: append(redisColumns("keys"),
			extraColumn("MEMORY USAGE of a key", 0, inBytes),
			extraColumn("memory of the server for each key", 1, inBytes)),
	}
	var g grower
	defer g.close()
	var servers []*redisServer
	for _, keys := range p.upTo(10_000, 1000, 10_000, 100_000, 1_000_000) {
		d, err := g.deploy(ctx, single, 1)
		if err != nil {
			return t, err
		}
		servers = append(servers, d.servers[0])
		w := workload{callers: growthCallers, keys: keys, limits: growthLimits(1), allowed: true, ours: limiterTake}
		if err := g.add(ctx, keys, w, d, nil); err != nil {
			return t, err
		}
	}
	if err := g.measure(ctx, p.plan); err != nil {
		return t, err
	}
	for i, s := range servers {
		ofKey, err := s.memoryOfKeys(ctx)
		if err != nil {
			return t, err
		}
		gone, err := s.flushed(ctx)
		if err != nil {
			return t, err
		}
		g.rows[i].extra = []float64{ofKey, gone / float64(g.rows[i].size)}
	}
	t.rows = g.rows
	return t, nil
}

// memoryOfKeys returns the mean memory that the server reports for some of its keys.
func (s *redisServer) memoryOfKeys(ctx context.Context) (float64, error) {
	const samples = 200
	var sum int64
	for range samples {
		key, err := s.control.RandomKey(ctx).Result()
		if err != nil {
			return 0, err
		}
		n, err := s.control.MemoryUsage(ctx, key).Result()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return float64(sum) / samples, nil
}

// flushed deletes all keys, and returns by how many bytes the memory of the server shrinks. The connections are the
// same before and after.
func (s *redisServer) flushed(ctx context.Context) (float64, error) {
	before, err := usedMemory(ctx, s.control)
	if err != nil {
		return 0, err
	}
	if err := s.control.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	after, err := usedMemory(ctx, s.control)
	return before - after, err
}

var usedMemoryField = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

func usedMemory(ctx context.Context, client *redis.Client) (float64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	match := usedMemoryField.FindStringSubmatch(info)
	if match == nil {
		return 0, fmt.Errorf("INFO memory without used_memory: %q", info)
	}
	return strconv.ParseFloat(match[1], 64)
}
