package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// timely reports whether client ends a command by the deadline of its context, which go-redis does only if
// it was made so, and only if it has timeouts at all. Others can only be waited for apart from the caller.
func timely(client Client) bool {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	case *redis.ClusterClient:
		o := c.Options()
		return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	case *redis.Ring:
		o := c.Options()
		return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	default:
		return false
	}
}

// callApart is call for a client that is not timely: it leaves it behind when ctx ends.
func (s *Store) callApart(ctx context.Context, args []any) ([]int64, error) {
	type result struct {
		reply []int64
		err   error
	}
	done := make(chan result, 1)
	go func() {
		reply, err := s.call(ctx, args)
		done <- result{reply, err}
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
