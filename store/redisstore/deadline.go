package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// timely returns a client that obeys the deadlines of contexts on the wire, which go-redis does only if it
// was made so (ContextTimeoutEnabled), and whether it is one. Of a *redis.Client it makes such a one, on
// the same connections. Others that were not made so can only be waited for apart from the caller.
func timely(client Client) (Client, bool) {
	switch c := client.(type) {
	case *redis.Client:
		options := c.Options()
		if options.ContextTimeoutEnabled {
			return c, true
		}
		own := c.WithTimeout(options.ReadTimeout)
		own.Options().ContextTimeoutEnabled = true // the copy's, which nobody has used yet
		return own, own.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c, c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return c, c.Options().ContextTimeoutEnabled
	default:
		return c, false
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

// ended reports whether err only says that ctx ended. The connection may notice its deadline a little
// before ctx does.
func ended(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, limited := ctx.Deadline()
	var network net.Error
	return limited && !time.Now().Before(deadline) && errors.As(err, &network) && network.Timeout()
}
