package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Block implements store.Blocker.
func (e *engine) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	if err := store.ValidateBlock(policy, key, b); err != nil {
		return false, err
	}
	if err := e.admit(ctx); err != nil {
		return false, err
	}
	items := []item{{policy: policy, key: keyname.Short(key)}}
	e.keys.name(items)
	_, err = within(ctx, e, func(ctx context.Context) (none struct{}, err error) {
		defer e.recovered(&err)
		clock := e.clockArgument()
		return none, e.process(ctx, func(bool) redis.Cmder {
			return swapping{redis.NewCmd(ctx, "eval", lua.Block, 1, items[0].name, clock, bucket.Microseconds(b.For), b.Reason)}
		})
	})
	return false, uncharged(err)
}
