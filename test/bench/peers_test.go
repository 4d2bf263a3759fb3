package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
)

// version returns name with the version of module in go.mod. A test binary does not know those of its own.
func version(name, module string) string {
	if text, err := os.ReadFile("go.mod"); err == nil {
		if match := regexp.MustCompile(regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(text); match != nil {
			return name + " " + string(match[1])
		}
	}
	return name
}

var redisRate = version("redis_rate", "github.com/go-redis/redis_rate/v10")

// redisRateTake makes a call for each limit, because redis_rate cannot combine limits.
func redisRateTake(b *testing.B, s servers, defaults bool, limits []ratelimit.Limit) side {
	theirs, ours := redis_rate.NewLimiter(s.client(b, defaults)), redisRateLimits(limits)
	return side{redisRate, shared(func(ctx context.Context, key string) (bool, error) {
		for i, l := range ours {
			result, err := theirs.Allow(ctx, key+":"+strconv.Itoa(i), l)
			if err != nil || result.Allowed == 0 {
				return false, err
			}
		}
		return true, nil
	})}
}

func redisRateLimits(limits []ratelimit.Limit) []redis_rate.Limit {
	theirs := make([]redis_rate.Limit, len(limits))
	for i, l := range limits {
		theirs[i] = redis_rate.Limit{Rate: int(l.Rate), Burst: int(l.Burst), Period: l.Per}
	}
	return theirs
}

// redisRateHandler is the handler that users of redis_rate have to write, with the headers of Limiter.Handler.
func redisRateHandler(b *testing.B, s servers, limits []ratelimit.Limit) side {
	theirs, ours := redis_rate.NewLimiter(s.client(b, false)), redisRateLimits(limits)
	return side{redisRate, requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var tightest *redis_rate.Result
		for i, l := range ours {
			result, err := theirs.Allow(r.Context(), r.Header.Get(keyHeader)+":"+strconv.Itoa(i), l)
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
		greet(w, r)
	}))}
}

// autoPipeline shows the effect of batching by the client. Each call is a script call, and many share a pipeline.
func autoPipeline(b *testing.B, s servers, l ratelimit.Limit) side {
	limit, err := store.NewLimit(l.Rate, l.Per, l.Burst)
	check(b, err)
	client := s.client(b, false)
	check(b, client.ScriptLoad(context.Background(), lua.Take).Err())
	pipeline, err := client.AutoPipeline()
	check(b, err)
	// As the head of take.lua describes: the server's clock, one term, and one call of one charge.
	args := []any{"", 1, limit.Unit, limit.Refill, limit.Capacity, limit.Unit, 0, 0, 0, 1, 1, 1, 1}
	return side{version("our script on AutoPipeline of go-redis", "github.com/redis/go-redis/v9"), shared(func(ctx context.Context, key string) (bool, error) {
		reply, err := pipeline.EvalSha(ctx, lua.TakeSHA1, []string{"autopipeline:" + key}, args...).Int64Slice()
		if err == nil && len(reply) != 2 {
			err = fmt.Errorf("reply of %d integers", len(reply))
		}
		return err == nil && reply[0] == 1, err
	})}
}

// plainBucket is a token bucket such as many write for themselves.
//
//go:embed rueidis.lua
var plainBucket string

// onRueidis is the limiter of users who know that rueidis pipelines the commands of concurrent callers.
func onRueidis(b *testing.B, s servers, l ratelimit.Limit) side {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s[0].address}})
	check(b, err)
	b.Cleanup(client.Close)
	script := rueidis.NewLuaScript(plainBucket)
	args := []string{strconv.FormatInt(l.Per.Microseconds()/l.Rate, 10), strconv.FormatInt(l.Burst, 10)}
	return side{version("a script on rueidis", "github.com/redis/rueidis"), shared(func(ctx context.Context, key string) (bool, error) {
		taken, err := script.Exec(ctx, client, []string{"rueidis:" + key}, args).AsInt64()
		return taken == 1, err
	})}
}

// ulule counts in a fixed window. A counter is less work than a bucket.
func ulule(b *testing.B, s servers, l ratelimit.Limit) side {
	opened, err := ululeredis.NewStore(s.client(b, false))
	check(b, err)
	theirs := limiter.New(opened, limiter.Rate{Limit: l.Burst, Period: time.Hour})
	return side{version("ulule/limiter", "github.com/ulule/limiter/v3"), shared(func(ctx context.Context, key string) (bool, error) {
		result, err := theirs.Get(ctx, key)
		return err == nil && !result.Reached, err
	})}
}

// throttledTake takes no part with one key for all calls: it reads, then compares and swaps, and fails after ten
// conflicts.
func throttledTake(b *testing.B, s servers, l ratelimit.Limit) side {
	opened, err := goredisstore.NewCtx(s.client(b, false), "throttled:")
	check(b, err)
	theirs, err := throttled.NewGCRARateLimiterCtx(opened, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(1, l.Per/time.Duration(l.Rate)),
		MaxBurst: int(min(l.Burst, 1_000_000)) - 1,
	})
	check(b, err)
	return side{version("throttled", "github.com/throttled/throttled/v2"), shared(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := theirs.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	})}
}

// xTimeRate is the limiter in memory that most users write for a limit per key. It never forgets a key.
func xTimeRate(l ratelimit.Limit) side {
	var limiters sync.Map
	perSecond, burst := rate.Limit(float64(l.Rate)/l.Per.Seconds()), int(l.Burst)
	return side{version("a sync.Map of x/time/rate", "golang.org/x/time"), shared(func(_ context.Context, key string) (bool, error) {
		limiter, ok := limiters.Load(key)
		if !ok {
			limiter, _ = limiters.LoadOrStore(key, rate.NewLimiter(perSecond, burst))
		}
		return limiter.(*rate.Limiter).Allow(), nil
	})}
}
