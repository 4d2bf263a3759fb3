package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
)

func init() {
	redisCompetitors = append(redisCompetitors, redisLimiter{
		name: version("redis_rate", "github.com/go-redis/redis_rate/v10"),
		open: openRedisRate,
	})
}

func openRedisRate(client *redis.Client, l ratelimit.Limit) func(context.Context, string) (bool, error) {
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: int(l.Rate), Burst: int(l.Burst), Period: l.Per}
	return func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, limit)
		return err == nil && result.Allowed > 0, err
	}
}
