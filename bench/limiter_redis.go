package main

import (
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// The names of the comparisons in which competitors besides redis_rate take part.
const (
	limiter64       = "limiter 64 callers"
	limiter1024     = "limiter 1024 callers"
	limiterHot      = "limiter hot 1024 callers"
	limiterRefusals = "limiter refusals 256 callers"
	cluster1024     = "cluster 1024 callers"
)

var (
	// endless is a limit that never empties a bucket. It is so slow that no bucket becomes full, and is dropped from
	// Redis, before its next use.
	endless = ratelimit.Limit{Rate: 1, Per: 10 * time.Second, Burst: 200_000_000}

	alsoEndless = ratelimit.Limit{Rate: 1, Per: 20 * time.Second, Burst: 100_000_000}

	// exhausted is a limit whose bucket is empty after the first call.
	exhausted = ratelimit.PerHour(1).WithBurst(1)
)

const manyKeys = 10_000

// loneBounds are the bounds for the decision of a single caller.
func loneBounds(p50 float64) loadBounds {
	return loadBounds{p50: atMostTimes(p50), p99: atMostTimes(1.15), redis: atMostTimes(0.9), script: atMostTimes(0.75)}
}

// These comparisons call like a service: through the Limiter, with a context for each call.
func init() {
	for _, settings := range []clientSettings{advised, defaults} {
		lone := loneBounds(1)
		if settings == defaults {
			lone = loneBounds(1.1)
		}
		for _, w := range []workload{
			{name: "limiter 1 caller", what: "10,000 keys", callers: 1, keys: manyKeys, allowed: true, bounds: lone},
			{name: limiter64, what: "10,000 keys", callers: 64, keys: manyKeys, allowed: true, bounds: loadBounds{rate: atLeastTimes(3)}},
			{name: limiter1024, what: "10,000 keys", callers: 1024, keys: manyKeys, allowed: true,
				bounds: loadBounds{rate: atLeastTimes(4), p99: atMostTimes(0.33), redis: atMostTimes(0.28), own: atMostTimes(0.35)}},
			{name: limiterHot, what: "one key, all allowed", callers: 1024, keys: 1, allowed: true,
				bounds: loadBounds{rate: atLeastTimes(12), redis: atMostTimes(0.025)}},
			{name: limiterRefusals, what: "8 empty keys, all refused (by us mostly without asking Redis)", callers: 256, keys: 8,
				limits: []ratelimit.Limit{exhausted}, bounds: loadBounds{rate: atLeastTimes(80)}},
		} {
			w.ours, w.settings = limiterTake, settings
			w.what += ", " + settings.String()
			if settings == defaults {
				w.name += " defaults" // only redis_rate takes part under this name
			}
			w.register(asUsed)
		}
	}
	two := []ratelimit.Limit{endless, alsoEndless}
	twoBounds := loadBounds{p50: atMostTimes(0.65)}
	clusterBounds := loadBounds{rate: atLeastTimes(3), p99: atMostTimes(0.4), redis: atMostTimes(0.35)}
	for _, w := range []workload{
		{name: "limiter two policies", what: "two policies of one key, 10,000 keys", callers: 1, keys: manyKeys, limits: two, ours: limiterTakeAll, bounds: twoBounds},
		{name: "handler two policies", what: "HTTP requests, two policies of one key, 10,000 keys", callers: 1, keys: manyKeys, limits: two, handler: true, ours: limiterHandler, bounds: twoBounds},
		{name: "handler 1 caller", what: "HTTP requests, 10,000 keys", callers: 1, keys: manyKeys, handler: true, ours: limiterHandler},
		{name: "handler 1024 callers", what: "HTTP requests, 10,000 keys", callers: 1024, keys: manyKeys, handler: true, ours: limiterHandler},
		{name: "cluster 1 caller", what: "Cluster of three masters, 10,000 keys", callers: 1, keys: manyKeys, shape: cluster, servers: 3, ours: limiterTake, bounds: loneBounds(1)},
		{name: cluster1024, what: "Cluster of three masters, 10,000 keys", callers: 1024, keys: manyKeys, shape: cluster, servers: 3, ours: limiterTake, bounds: clusterBounds},
		{name: "ring 1 caller", what: "Ring over three servers, 10,000 keys", callers: 1, keys: manyKeys, shape: ring, servers: 3, ours: limiterTake},
		{name: "ring 1024 callers", what: "Ring over three servers, 10,000 keys", callers: 1024, keys: manyKeys, shape: ring, servers: 3, ours: limiterTake},
	} {
		w.allowed = true
		w.register(asUsed)
	}
	workload{
		name: "limiter lease", what: "one key of 10,000,000 per second and a burst of 1,000,000, all allowed", callers: 256, keys: 1,
		limits: leasable, allowed: true, ours: limiterLease,
	}.register(asUsed)
}

// register adds the comparison of w. If w has no limits, it gets one endless limit.
func (w workload) register(s section) {
	if w.limits == nil {
		w.limits = []ratelimit.Limit{endless}
	}
	register(s, w.name, w.compare)
}
