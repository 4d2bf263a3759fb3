package redisstore_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// Old connections are black holes there and new ones work, as after a failover of a load balancer.
func TestCallersWithLongDeadlinesDoNotHoldUpOthersOnHalfOpenConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, change := range map[string]func(*redis.Options){
		"a client that obeys deadlines":        func(o *redis.Options) { o.ContextTimeoutEnabled = true },
		"one that is made to":                  func(*redis.Options) {},
		"one that sets none and is waited for": func(o *redis.Options) { o.ReadTimeout = -2 },
	} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr())
			var broken atomic.Bool
			var dials atomic.Int64
			client := server.ClientOptions(func(o *redis.Options) {
				o.PoolSize = 10
				o.ReadTimeout = time.Minute
				change(o)
				o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
					addr := proxy.Addr()
					if broken.Load() {
						addr = server.Addr()
					}
					dials.Add(1) // from here on, this connection goes to addr
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			})
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1}))
			take(t, s, charge(t, name))

			proxy.BlackHole()
			var holding sync.WaitGroup
			endless, cancel := context.WithCancel(context.Background())
			defer cancel()
			for _, ctx := range []context.Context{context.Background(), endless} {
				holding.Go(func() {
					if _, err := tryIn(ctx, s, charge(t, name)); err == nil {
						t.Error("a call on a dead connection was answered")
					}
				})
				until(t, "it is on its way", func() bool { flights, _ := redisstore.Flights(s); return flights > 0 })
			}
			until(t, "the second needs a connection, which is dead, too", func() bool { return dials.Load() >= 2 })
			broken.Store(true)

			until(t, "others are served", func() bool { ok, _ := try(s, charge(t, "other")); return ok })
			if _, overdue := redisstore.Flights(s); overdue < 2 {
				t.Errorf("%d flights are overdue, want those of the two", overdue)
			}
			proxy.Cut()
			holding.Wait()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
