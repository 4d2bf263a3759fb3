package main

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/go-tokenbucket/ratelimit"
)

// yardstick is the competitor for the bounds under load.
var yardstick = version("redis_rate", "github.com/go-redis/redis_rate/v10")

func init() {
	redisCompetitors = append(redisCompetitors,
		redisLimiter{
			name:      yardstick,
			takesPart: func(w workload) bool { return !w.handler },
			open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
				return openRedisRate(d, func(l *redis_rate.Limiter) func() takeFunc { return forAll(redisRateTake(l, limits)) })
			},
		},
		redisLimiter{
			name:      yardstick,
			takesPart: func(w workload) bool { return w.handler },
			open: func(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
				return openRedisRate(d, func(l *redis_rate.Limiter) func() takeFunc {
					h := redisRateHandler(l, limits, http.HandlerFunc(greet))
					return func() takeFunc { return request(h) }
				})
			},
		},
	)
}

func openRedisRate(d *deployment, callers func(*redis_rate.Limiter) func() takeFunc) (openRedis, error) {
	client, err := d.client()
	if err != nil {
		return openRedis{}, err
	}
	return openRedis{
		take:  callers(redis_rate.NewLimiter(client)),
		close: func() { client.Close() },
	}, nil
}

// redisRateTake makes a separate call for each limit, because redis_rate cannot combine limits.
func redisRateTake(limiter *redis_rate.Limiter, limits []ratelimit.Limit) takeFunc {
	theirs := redisRateLimits(limits)
	return func(ctx context.Context, key string) (bool, error) {
		for i, l := range theirs {
			result, err := limiter.Allow(ctx, bucketOf(key, i), l)
			if err != nil || result.Allowed == 0 {
				return false, err
			}
		}
		return true, nil
	}
}

// redisRateHandler is the handler that users of redis_rate have to write, with the headers of Limiter.Handler.
func redisRateHandler(limiter *redis_rate.Limiter, limits []ratelimit.Limit, next http.Handler) http.Handler {
	theirs := redisRateLimits(limits)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(keyHeader)
		var tightest *redis_rate.Result
		for i, l := range theirs {
			result, err := limiter.Allow(r.Context(), bucketOf(key, i), l)
			if err != nil {
				http.Error(w, "no decision", http.StatusServiceUnavailable)
				return
			}
			if tightest == nil || result.Remaining < tightest.Remaining {
				tightest = result
			}
			if result.Allowed == 0 {
				break
			}
		}
		h := w.Header()
		h.Set("X-RateLimit-Limit", strconv.Itoa(tightest.Limit.Burst))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(tightest.Remaining))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(tightest.ResetAfter+time.Second-1).Unix(), 10))
		if tightest.Allowed == 0 {
			h.Set("Retry-After", strconv.Itoa(int((tightest.RetryAfter+time.Second-1)/time.Second)))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bucketOf returns the key of the ith limit of a key.
func bucketOf(key string, i int) string {
	if i == 0 {
		return key
	}
	return key + ":" + strconv.Itoa(i)
}

func redisRateLimits(limits []ratelimit.Limit) []redis_rate.Limit {
	theirs := make([]redis_rate.Limit, len(limits))
	for i, l := range limits {
		theirs[i] = redis_rate.Limit{Rate: int(l.Rate), Burst: int(l.Burst), Period: l.Per}
	}
	return theirs
}
