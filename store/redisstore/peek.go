package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements store.Inspector.
func (e *engine) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	if err := e.admit(ctx); err != nil {
		return store.Bucket{}, err
	}
	items := []item{{policy: policy, key: keyname.Short(key)}}
	e.keys.name(items)
	return within(ctx, e, func(ctx context.Context) (store.Bucket, error) { return e.peek(ctx, items[0].name) })
}

// peek reads the bucket of a key.
func (e *engine) peek(ctx context.Context, key string) (b store.Bucket, err error) {
	defer e.recovered(&err)
	clock := e.clockArgument()
	var cmd reading
	err = e.process(ctx, func(eval bool) redis.Cmder {
		command, script := "evalsha", lua.PeekSHA1
		if eval {
			command, script = "eval", lua.Peek
		}
		cmd = reading{redis.NewSliceCmd(ctx, command, script, 1, key, clock)}
		return cmd
	})
	if err != nil {
		return store.Bucket{}, err
	}
	return parseBucket(cmd.Val(), e.clock == nil)
}
