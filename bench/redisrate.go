package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"

	"github.com/go-tokenbucket/ratelimit"
)

// yardstick is the name of the competitor that the bounds under load are for.
var yardstick = version("redis_rate", "github.com/go-redis/redis_rate/v10")

func init() {
	redisCompetitors = append(redisCompetitors, redisLimiter{
		name: yardstick,
		in:   append([]string{uniform1, leased256}, underLoad...),
		open: openRedisRate,
	})
}

func openRedisRate(_ context.Context, server *redisServer, l ratelimit.Limit) (openRedis, error) {
	client := server.client()
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: int(l.Rate), Burst: int(l.Burst), Period: l.Per}
	take := func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, limit)
		return err == nil && result.Allowed > 0, err
	}
	return openRedis{
		take:  func() func(context.Context, string) (bool, error) { return take },
		close: func() { client.Close() },
	}, nil
}
