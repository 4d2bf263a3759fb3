package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/lua"
)

// limits is the name of the key that holds the changed limits, after the prefix. Buckets have a brace there.
const limits = ":limits"

// LoadLimits returns the hash of changed limits, which has the key "<prefix>:limits". Package
// [github.com/go-tokenbucket/ratelimit/limits] says what the values are. The reply of Redis is bounded. Instead of a value of
// more than 1,024 bytes it has the length, such as "2048 bytes". Names of more than 64 bytes are left out. A hash of more
// than 1,000 fields is an error. LoadLimits needs the rights +hlen, +hkeys and +hstrlen, and those of Take. Its errors are
// those of Take, except ErrQueueFull.
func (s *Store) LoadLimits(ctx context.Context) (map[string]string, error) {
	e := s.engine
	if err := e.admit(ctx); err != nil {
		return nil, err
	}
	return within(ctx, e, func(ctx context.Context) (held map[string]string, err error) {
		defer e.recovered(&err)
		var cmd reading
		if err := e.process(ctx, func(eval bool) redis.Cmder {
			command, script := "evalsha", lua.LoadLimitsSHA1
			if eval {
				command, script = "eval", lua.LoadLimits
			}
			cmd = reading{redis.NewSliceCmd(ctx, command, script, 1, e.keys.prefix+limits)}
			return cmd
		}); err != nil {
			return nil, err
		}
		return parseLimits(cmd.Val())
	})
}

// parseLimits parses the reply of load_limits.lua.
func parseLimits(reply []any) (map[string]string, error) {
	if len(reply) == 1 {
		return nil, fmt.Errorf("redisstore: the hash of limits has %v fields: must have at most 1000; remove what does not belong there", reply[0])
	}
	held := make(map[string]string, len(reply)/2)
	for pair := range slices.Chunk(reply, 2) {
		name, ok := pair[0].(string)
		value, also := pair[len(pair)-1].(string)
		if !ok || !also || len(pair) != 2 {
			return nil, fmt.Errorf("redisstore: reply %v to the script that reads limits", pair)
		}
		held[name] = value
	}
	return held, nil
}

// SwapLimit replaces the value was of a policy in the hash of changed limits by the value now. "" stands for no value. It
// returns the value that is kept afterwards. If that is not the new one, nothing was changed. Redis puts its time before the
// value, in microseconds, and a space. It adds the entry to the log of the last 50 changes in the same way. SwapLimit needs
// the rights +hstrlen and +hdel, and those of Take. Its errors are those of Take, except ErrQueueFull.
func (s *Store) SwapLimit(ctx context.Context, policy, was, now, entry string) (held string, err error) {
	e := s.engine
	if err := e.admit(ctx); err != nil {
		return "", err
	}
	return within(ctx, e, func(ctx context.Context) (held string, err error) {
		defer e.recovered(&err)
		clock := e.clockArgument()
		var cmd swapping
		if err := e.process(ctx, func(bool) redis.Cmder {
			cmd = swapping{redis.NewCmd(ctx, "eval", lua.SwapLimit, 1, e.keys.prefix+limits, policy, was, now, entry, clock)}
			return cmd
		}); err != nil {
			return "", err
		}
		return cmd.Text()
	})
}
