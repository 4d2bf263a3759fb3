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

// defaultGiven is what a call is given whose context does not say.
const defaultGiven = 100 * time.Millisecond

// given returns how long a call under ctx was given.
func given(ctx context.Context) time.Duration { return cmp.Or(deadline.TimeoutOf(ctx), defaultGiven) }

// overloaded is late where the reply may have come.
func overloaded(err error) error { return fmt.Errorf("redisstore: %w: %w", store.ErrOverloaded, err) }

// failure returns what a caller is told of a command that failed under ctx.
func failure(ctx context.Context, err error) error {
	if ended(ctx, err) {
		over := late(cmp.Or(ctx.Err(), context.DeadlineExceeded))
		if certain(err) {
			return unsent{over}
		}
		return over
	}
	return fmt.Errorf("redisstore: %w", err)
}

// isRedis reports whether err is an answer of a server.
func isRedis(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// ended reports whether err says that ctx ended. A connection may notice its deadline a little before ctx
// does.
func ended(ctx context.Context, err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	deadline, limited := ctx.Deadline()
	var network net.Error
	return limited && !time.Now().Before(deadline) && errors.As(err, &network) && network.Timeout()
}
