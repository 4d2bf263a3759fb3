package main

import (
	"context"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// leased256 is the name of the comparison, by which competitors choose it.
const leased256 = "redisstore lease hot 256 callers"

func init() {
	w := workload{
		name: leased256, what: "one key of 10,000,000 per second and a burst of 1,000,000, all allowed", callers: 256, keys: 1,
		limit: ratelimit.PerSecond(10_000_000).WithBurst(1_000_000), allowed: true, ours: &leaseTake,
		bounds: loadBounds{rate: atLeastTimes(100)},
	}
	register(w.name, w.compare)
}

var leaseTake = redisLimiter{
	name: "lease.Store on redisstore",
	open: func(_ context.Context, server *redisServer, l ratelimit.Limit) (openRedis, error) {
		limit, err := compile(l)
		if err != nil {
			return openRedis{}, err
		}
		client := server.client()
		s := lease.New(redisstore.New(client, redisstore.Config{}), lease.Config{})
		return openRedis{
			take: func() func(context.Context, string) (bool, error) { return storeTake(s, limit) },
			close: func() {
				s.Close()
				client.Close()
			},
		}, nil
	},
}
