package main

import (
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A workload is a comparison in Redis.
type workload struct {
	name            string
	callers, keys   int
	zipf            float64
	limit           ratelimit.Limit
	masters         int
	defaults        bool // the clients have the defaults of go-redis
	pipelines       bool // libraries besides redis_rate take part
	pipelinesOneKey bool // and throttled does not
	lease           bool
}

func (w workload) load(s servers, ownContext bool) load {
	return load{callers: w.callers, keys: w.keys, zipf: w.zipf, denied: w.limit == exhausted, context: ownContext, redis: s}
}

// BenchmarkLimiter calls Limiter.Take as a service does, with a context for each call.
func BenchmarkLimiter(b *testing.B) {
	for _, w := range []workload{
		{name: "10,000 keys, 1 caller", callers: 1, keys: 10_000, limit: endless},
		{name: "10,000 keys, 64 callers", callers: 64, keys: 10_000, limit: endless, pipelines: true},
		{name: "10,000 keys, 1,024 callers", callers: 1024, keys: 10_000, limit: endless, pipelines: true},
		{name: "one key, 1,024 callers", callers: 1024, keys: 1, limit: endless, pipelines: true, pipelinesOneKey: true},
		{name: "8 empty keys, all refused, 256 callers", callers: 256, keys: 8, limit: exhausted, pipelines: true},
		{name: "10,000 keys, clients of defaults, 1 caller", callers: 1, keys: 10_000, limit: endless, defaults: true},
		{name: "10,000 keys, clients of defaults, 1,024 callers", callers: 1024, keys: 10_000, limit: endless, defaults: true},
		{name: "a Cluster of three masters, 10,000 keys, 1 caller", callers: 1, keys: 10_000, limit: endless, masters: 3},
		{name: "a Cluster of three masters, 10,000 keys, 1,024 callers", callers: 1024, keys: 10_000, limit: endless, masters: 3},
		{name: "one key of 10,000,000 per second, leased, 256 callers", callers: 256, keys: 1, limit: leasable, lease: true},
	} {
		b.Run(w.name, func(b *testing.B) {
			s := startRedis(b, w.masters)
			ours := openStore(b, s, w.defaults, redisstore.Config{})
			if w.lease {
				ours = openLease(b, s)
			}
			w.load(s, true).run(b, append([]side{{"Limiter.Take", limiterTake(b, ours, w.limit)}}, w.peers(b, s)...)...)
		})
	}
}

// peers are the other sides of w.
func (w workload) peers(b *testing.B, s servers) []side {
	sides := []side{redisRateTake(b, s, w.defaults, []ratelimit.Limit{w.limit})}
	if w.pipelines {
		sides = append(sides, autoPipeline(b, s, w.limit), onRueidis(b, s, w.limit), ulule(b, s, w.limit))
	}
	if w.pipelines && !w.pipelinesOneKey {
		sides = append(sides, throttledTake(b, s, w.limit))
	}
	return sides
}

// BenchmarkPolicies charges two policies of one key. It compares one call of ours with two of redis_rate.
func BenchmarkPolicies(b *testing.B) {
	b.Run("two policies of one key, 10,000 keys, 1 caller", func(b *testing.B) {
		s := startRedis(b, 1)
		ours := openStore(b, s, false, redisstore.Config{})
		load{callers: 1, keys: 10_000, context: true, redis: s}.run(b,
			side{"Limiter.TakeAll", limiterTakeAll(b, ours, manyLimits(2))}, redisRateTake(b, s, false, manyLimits(2)))
	})
}

// BenchmarkHandler serves requests without a network.
func BenchmarkHandler(b *testing.B) {
	for _, w := range []struct {
		name             string
		policies, caller int
	}{
		{"10,000 keys, 1 caller", 1, 1},
		{"10,000 keys, 1,024 callers", 1, 1024},
		{"two policies of one key, 10,000 keys, 1 caller", 2, 1},
	} {
		b.Run(w.name, func(b *testing.B) {
			s := startRedis(b, 1)
			ours := openStore(b, s, false, redisstore.Config{})
			load{callers: w.caller, keys: 10_000, context: true, redis: s}.run(b,
				side{"Limiter.Handler", limiterHandler(b, ours, manyLimits(w.policies))}, redisRateHandler(b, s, manyLimits(w.policies)))
		})
	}
}

// BenchmarkStore calls the store without the Limiter, with one context for many calls.
func BenchmarkStore(b *testing.B) {
	for _, w := range []workload{
		{name: "10,000 keys, 1 caller", callers: 1, keys: 10_000, limit: endless},
		{name: "10,000 keys, 1,024 callers", callers: 1024, keys: 10_000, limit: endless},
		{name: "10,000 Zipf keys (s = 1.1), 1,024 callers", callers: 1024, keys: 10_000, zipf: 1.1, limit: endless},
		{name: "one key, 1,024 callers", callers: 1024, keys: 1, limit: endless},
		{name: "8 empty keys, all refused, 256 callers", callers: 256, keys: 8, limit: exhausted},
		{name: "one key of 10,000,000 per second, leased, 256 callers", callers: 256, keys: 1, limit: leasable, lease: true},
	} {
		b.Run(w.name, func(b *testing.B) {
			s := startRedis(b, 1)
			ours, name := openStore(b, s, false, redisstore.Config{}), "redisstore.Take"
			if w.lease {
				ours, name = openLease(b, s), "lease.Store on redisstore"
			}
			w.load(s, false).run(b, append([]side{{name, storeTake(b, ours, w.limit)}}, w.peers(b, s)...)...)
		})
	}
}
