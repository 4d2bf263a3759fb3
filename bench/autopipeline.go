package main

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/lua"
)

func init() {
	redisCompetitors = append(redisCompetitors, redisLimiter{
		name:      version("our script on AutoPipeline of go-redis", "github.com/redis/go-redis/v9"),
		takesPart: in(limiter64, limiter1024, limiterHot, limiterRefusals, store64, store1024, storeHot, storeRefusals),
		open:      openAutoPipeline,
	})
}

// openAutoPipeline shows the effect of batching by the client. Each call is a separate script call, and many calls
// share a pipeline.
func openAutoPipeline(ctx context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
	limit, err := compile(limits[0])
	if err != nil {
		return openRedis{}, err
	}
	client, err := d.client()
	if err != nil {
		return openRedis{}, err
	}
	pipeline, err := client.AutoPipeline()
	if err == nil {
		err = client.ScriptLoad(ctx, lua.Take).Err()
	}
	if err != nil {
		client.Close()
		return openRedis{}, err
	}
	// As the head of take.lua describes: the server's clock, one term, and one call of one charge.
	args := []any{"", 1, limit.Unit, limit.Refill, limit.Capacity, limit.Unit, 0, 0, 1, 1, 1, 1}
	take := func(ctx context.Context, key string) (bool, error) {
		reply, err := pipeline.EvalSha(ctx, lua.TakeSHA1, []string{"autopipeline:" + key}, args...).Int64Slice()
		if err == nil && len(reply) != 2 {
			err = fmt.Errorf("reply of %d integers", len(reply))
		}
		return err == nil && reply[0] == 1, err
	}
	return openRedis{
		take:  forAll(take),
		close: func() { client.Close() },
	}, nil
}
