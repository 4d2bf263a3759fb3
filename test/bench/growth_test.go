package main

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// In these benchmarks one thing grows: the name of a sub-benchmark is its size.

// grow runs f for each size. A short run, which is to see that all works, leaves out those above most.
func grow(b *testing.B, most int, sizes []int, f func(b *testing.B, size int)) {
	for _, size := range sizes {
		if os.Getenv(short) != "" && size > most {
			continue
		}
		f(b, size)
	}
}

// growthLoad has the callers of all benchmarks of growth in Redis.
func growthLoad(s servers, keys int) load {
	return load{callers: 1024, keys: keys, context: true, redis: s}
}

func BenchmarkGrowthOfKeysInMemory(b *testing.B) {
	grow(b, 100_000, []int{1000, 10_000, 100_000, 1_000_000, 10_000_000}, func(b *testing.B, keys int) {
		buckets := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 2 * keys})) // evicts nothing
		defer buckets.Close()
		open := limiterTake(b, buckets, manyLimits(1)[0])
		perKey := heapOfKeys(b, open(), keys)
		l := load{callers: runtime.GOMAXPROCS(0), keys: keys}
		_, draws := l.draw()
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			l.measure(b, slices.Repeat([]take{open()}, l.callers), draws)
			b.ReportMetric(perKey, "B/key")
		})
	})
}

func BenchmarkGrowthOfKeysInRedis(b *testing.B) {
	grow(b, 10_000, []int{1000, 10_000, 100_000, 1_000_000}, func(b *testing.B, keys int) {
		s := startRedis(b, 1)
		of := side{strconv.Itoa(keys), limiterTake(b, openStore(b, s, false, redisstore.Config{}), manyLimits(1)[0])}
		l := growthLoad(s, keys)
		all, draws := l.draw()
		l.fill(b, of, all)
		perKey := s[0].flushed(b) / float64(keys)
		takes := l.fill(b, of, all)
		b.Run(of.name, func(b *testing.B) {
			l.measure(b, takes, draws)
			b.ReportMetric(s[0].memoryOfKeys(b), "usage-B/key")
			b.ReportMetric(perKey, "B/key")
		})
	})
}

// flushed deletes all keys, and returns by how many bytes the server shrinks. The connections are the same before and after.
func (s *server) flushed(b *testing.B) float64 {
	before := s.info(b, "memory", "used_memory")
	check(b, s.control.FlushAll(context.Background()).Err())
	return before - s.info(b, "memory", "used_memory")
}

// memoryOfKeys returns the mean memory that the server reports for some of its keys.
func (s *server) memoryOfKeys(b *testing.B) float64 {
	const samples = 200
	var sum int64
	for range samples {
		key, err := s.control.RandomKey(context.Background()).Result()
		check(b, err)
		n, err := s.control.MemoryUsage(context.Background(), key).Result()
		check(b, err)
		sum += n
	}
	return float64(sum) / samples
}

func BenchmarkGrowthOfPolicies(b *testing.B) {
	s := startRedis(b, 1)
	grow(b, 2, []int{1, 2, 3, 4, 6, 8}, func(b *testing.B, policies int) {
		growthLoad(s, 10_000).run(b, side{strconv.Itoa(policies), limiterTakeAll(b, openStore(b, s, false, redisstore.Config{}), manyLimits(policies))})
	})
}

// BenchmarkGrowthOfReplicas spreads the callers over several Limiters, each with a store and a client of its own.
func BenchmarkGrowthOfReplicas(b *testing.B) {
	s := startRedis(b, 1)
	grow(b, 2, []int{1, 2, 4, 8, 16}, func(b *testing.B, replicas int) {
		var opened []func() take
		for range replicas {
			opened = append(opened, limiterTake(b, openStore(b, s, false, redisstore.Config{}), manyLimits(1)[0]))
		}
		growthLoad(s, 10_000).run(b, side{strconv.Itoa(replicas), inTurn(opened)})
	})
}

// inTurn spreads callers over replicas.
func inTurn(replicas []func() take) func() take {
	var callers atomic.Int64
	return func() take { return replicas[int(callers.Add(1))%len(replicas)]() }
}

func BenchmarkGrowthOfMasters(b *testing.B) {
	grow(b, 3, []int{1, 2, 3, 4, 6}, func(b *testing.B, masters int) {
		s := startRedis(b, masters)
		growthLoad(s, 10_000).run(b, side{strconv.Itoa(masters), limiterTake(b, openStore(b, s, false, redisstore.Config{}), manyLimits(1)[0])})
	})
}
