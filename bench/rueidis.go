package main

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/go-tokenbucket/ratelimit"
)

func init() {
	redisCompetitors = append(redisCompetitors, redisLimiter{
		name:      version("a script on rueidis", "github.com/redis/rueidis"),
		takesPart: in(limiter64, limiter1024, limiterHot, limiterRefusals),
		open:      openRueidis,
	})
}

// plainBucket is a token bucket such as many write for themselves.
//
//go:embed rueidis.lua
var plainBucket string

// openRueidis is the limiter of users who know that rueidis pipelines the commands of concurrent callers.
func openRueidis(_ context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{d.servers[0].address}})
	if err != nil {
		return openRedis{}, err
	}
	script := rueidis.NewLuaScript(plainBucket)
	perToken := strconv.FormatInt(limits[0].Per.Microseconds()/limits[0].Rate, 10)
	burst := strconv.FormatInt(limits[0].Burst, 10)
	take := func(ctx context.Context, key string) (bool, error) {
		taken, err := script.Exec(ctx, client, []string{"rueidis:" + key}, []string{perToken, burst}).AsInt64()
		return taken == 1, err
	}
	return openRedis{
		take:  forAll(take),
		close: client.Close,
	}, nil
}
