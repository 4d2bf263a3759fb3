package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements store.Inspector.
func (e *engine) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Bucket{}, notSent(err)
	}
	if !e.enter() {
		return store.Bucket{}, ErrClosed
	}
	items := []item{{policy: policy, key: shortkey.Of(key)}}
	e.keys.name(items)
	// With a clone for lone callers, it is asked by the client, which completes a handshake that outlasts ctx.
	if _, cloned := e.sender.(*redis.Conn); e.direct(ctx) && (!cloned || ctx.Done() == nil) {
		defer e.flying.Done()
		return e.peek(ctx, items[0].name)
	}

	// The client may return long after ctx has ended, when ctx must not be used any more.
	limited, cancel := context.Background(), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		limited, cancel = context.WithDeadline(limited, deadline)
	}
	type result struct {
		bucket store.Bucket
		err    error
	}
	done := make(chan result, 1)
	go func() {
		defer e.flying.Done()
		defer cancel()
		// This stays as the result if a hook of the client calls runtime.Goexit.
		r := result{err: errors.New("redisstore: the client ended the goroutine")}
		defer func() { done <- r }()
		r.bucket, r.err = e.peek(limited, items[0].name)
	}()
	select {
	case r := <-done:
		return r.bucket, r.err
	case <-ctx.Done():
		return store.Bucket{}, late(ctx.Err())
	}
}

// peek reads the bucket of a key.
func (e *engine) peek(ctx context.Context, key string) (b store.Bucket, err error) {
	defer func() {
		if p := recover(); p != nil { // in Config.Clock or a hook of the client
			err = fmt.Errorf("redisstore: panic: %v", p)
		}
	}()
	var clock any = ""
	if e.clock != nil {
		clock = e.clock().UnixMicro()
	}
	command, script := "evalsha", lua.PeekSHA1
	for tries := 1; ; {
		cmd := reading{redis.NewSliceCmd(ctx, command, script, 1, key, clock)}
		err := e.client.Process(ctx, cmd)
		switch {
		case err == nil:
			e.routes.answered()
			return parseBucket(cmd.Val(), e.clock == nil)
		case redis.HasErrorPrefix(err, "NOSCRIPT") && command == "evalsha":
			e.counts.loads.Add(1)
			command, script = "eval", lua.Peek
		case e.routes.moving(err) && tries < patience && pauses(ctx):
			tries++
		default:
			if !isRedis(err) {
				e.routes.failed(ctx)
			}
			return store.Bucket{}, failure(ctx, err)
		}
	}
}

// reading is a command that the client sends only once, so that it ends as soon as a Take does.
type reading struct{ *redis.SliceCmd }

func (reading) NoRetry() bool { return true }

// pauses waits before a command is sent again while its slot moves. It reports false if ctx ends.
func pauses(ctx context.Context) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
