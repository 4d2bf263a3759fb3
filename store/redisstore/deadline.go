package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/store"
)

func notSent(err error) error { return unsent{fmt.Errorf("redisstore: not sent: %w", err)} }

func late(err error) error { return fmt.Errorf("redisstore: no reply in time: %w", err) }

// defaultGiven is the time that a call without a deadline counts as having been given.
const defaultGiven = 100 * time.Millisecond

// given returns how much time a call under ctx was given.
func given(ctx context.Context) time.Duration { return cmp.Or(deadline.TimeoutOf(ctx), defaultGiven) }

// overloaded is for calls whose reply may have arrived before this process could read it.
func overloaded(err error) error { return fmt.Errorf("redisstore: %w: %w", store.ErrOverloaded, err) }

// failure returns the error for the caller of a command that failed under ctx.
func failure(ctx context.Context, err error) error {
	if ended(ctx, err) {
		over := late(cmp.Or(ctx.Err(), context.DeadlineExceeded))
		if certain(err) {
			return unsent{over}
		}
		return over
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fmt.Errorf("%w: %w", errNoBucket, err)
	}
	return fmt.Errorf("redisstore: %w", err)
}

// isRedis reports whether err is a reply of a server.
func isRedis(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// ended reports whether err means that ctx ended. A connection may notice the deadline shortly before ctx does.
func ended(ctx context.Context, err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	deadline, limited := ctx.Deadline()
	var network net.Error
	return limited && !time.Now().Before(deadline) && errors.As(err, &network) && network.Timeout()
}
