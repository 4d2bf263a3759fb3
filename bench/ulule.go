package main

import (
	"context"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/go-tokenbucket/ratelimit"
)

func init() {
	redisCompetitors = append(redisCompetitors, redisLimiter{
		name:      version("ulule/limiter", "github.com/ulule/limiter/v3"),
		takesPart: in(limiter64, limiter1024, limiterHot, limiterRefusals),
		open:      openUlule,
	})
}

// openUlule counts in a fixed window that is as long as a bucket takes to fill. A counter is less work than a bucket.
func openUlule(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
	l := limits[0]
	client, err := d.client()
	if err != nil {
		return openRedis{}, err
	}
	s, err := redis.NewStore(client)
	if err != nil {
		client.Close()
		return openRedis{}, err
	}
	instance := limiter.New(s, limiter.Rate{Limit: l.Burst, Period: l.Per * time.Duration(l.Burst) / time.Duration(l.Rate)})
	take := func(ctx context.Context, key string) (bool, error) {
		result, err := instance.Get(ctx, key)
		return err == nil && !result.Reached, err
	}
	return openRedis{
		take:  forAll(take),
		close: func() { client.Close() },
	}, nil
}
