package redisstore_test

import (
	"context"
	"encoding"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A busyPool is a client that waits for a connection before it writes a command, and allows all calls.
type busyPool time.Duration

func (wait busyPool) Process(ctx context.Context, cmd redis.Cmder) error {
	select {
	case <-time.After(time.Duration(wait)):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, arg := range cmd.Args() {
		if written, ok := arg.(encoding.BinaryMarshaler); ok {
			if text, _ := written.MarshalBinary(); len(text) == 0 {
				return redisError("ERR attempt to perform arithmetic")
			}
		}
	}
	if one, ok := cmd.(interface{ SetVal(int64) }); ok {
		one.SetVal(2*99 + 1)
		return nil
	}
	reply := make([]int64, 0, 2*cmd.Args()[2].(int))
	for range cap(reply) / 2 {
		reply = append(reply, 1, 99)
	}
	cmd.(interface{ SetVal([]int64) }).SetVal(reply)
	return nil
}

// While each command waits for a connection for more than half of a caller's time, some callers of each flight leave. To
// send the others again would take too long for them, and nobody would be served.
func TestCallersAreServedWhileConnectionsAreWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		wait time.Duration
		want int64 // of 1,000
	}{{50 * time.Millisecond, 1000}, {60 * time.Millisecond, 750}, {70 * time.Millisecond, 550}, {80 * time.Millisecond, 350}, {90 * time.Millisecond, 150}} {
		t.Run(tt.wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ratelimit.Must(redisstore.New(busyPool(tt.wait), redisstore.Config{MaxDenials: -1}))
				var served atomic.Int64
				var callers sync.WaitGroup
				for i := range 1000 {
					callers.Go(func() {
						if ok, err := try(s, charge(t, fmt.Sprint("k", i))); ok && err == nil {
							served.Add(1)
						}
					})
					time.Sleep(2 * time.Millisecond)
				}
				callers.Wait()
				s.Close()
				time.Sleep(time.Second) // in which the commands under way end
				if n := served.Load(); n < tt.want {
					t.Errorf("%d of 1,000 callers were served, want at least %d", n, tt.want)
				}
			})
		})
	}
}
