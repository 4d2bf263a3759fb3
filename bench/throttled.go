package main

import (
	"context"
	"time"

	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/go-tokenbucket/ratelimit"
)

func init() {
	redisCompetitors = append(redisCompetitors, redisLimiter{
		name: version("throttled", "github.com/throttled/throttled/v2"),
		// Not with one key for all calls: it reads, then compares and swaps, and fails after ten conflicts.
		takesPart: in(limiter64, limiter1024, limiterRefusals),
		open:      openThrottled,
	})
}

func openThrottled(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
	l := limits[0]
	client, err := d.client()
	if err != nil {
		return openRedis{}, err
	}
	s, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		client.Close()
		return openRedis{}, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(1, l.Per/time.Duration(l.Rate)),
		MaxBurst: int(l.Burst) - 1,
	})
	if err != nil {
		client.Close()
		return openRedis{}, err
	}
	take := func(ctx context.Context, key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	}
	return openRedis{
		take:  forAll(take),
		close: func() { client.Close() },
	}, nil
}
