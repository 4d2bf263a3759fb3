package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// wantUncharged checks that a call failed, and whether its error says that it charged nothing.
func wantUncharged(t *testing.T, ok bool, err error, want bool) {
	t.Helper()
	if ok || err == nil || errors.Is(err, store.ErrNotCharged) != want {
		t.Errorf("ok %t, error %v: says that nothing was charged: %t, want %t", ok, err, errors.Is(err, store.ErrNotCharged), want)
	}
	if err != nil && strings.Contains(err.Error(), "nothing was charged") {
		t.Errorf("error %v: the text should be that of the cause", err)
	}
}

func TestErrorsSayThatNothingWasCharged(t *testing.T) {
	t.Run("connection refused", func(t *testing.T) {
		server := redistest.Start(t)
		addr := server.Addr()
		ours, err := redisstore.Options("redis://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		server.Kill()
		for _, o := range []*redis.Options{{Addr: addr, DialerRetries: 1}, ours} {
			client := redis.NewClient(o)
			defer client.Close()
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
			for range 3 {
				ok, err := tryFor(patient, s, charge(t, "k"))
				wantUncharged(t, ok, err, true)
			}
		}
	})
	t.Run("a dial that times out with the call", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, DialerRetries: 1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		}, DialTimeout: 20 * time.Millisecond})
		defer client.Close()
		ok, err := tryFor(patient, ratelimit.Must(redisstore.New(client, redisstore.Config{})), charge(t, "k"))
		wantUncharged(t, ok, err, true)
	})
	t.Run("a reply that is lost says nothing", func(t *testing.T) {
		server := redistest.Start(t)
		proxy := redistest.NewProxy(t, server.Addr())
		s := ratelimit.Must(redisstore.New(server.ClientOptions(func(o *redis.Options) { o.Addr, o.ContextTimeoutEnabled = proxy.Addr(), true }), redisstore.Config{}))
		take(t, s, charge(t, "k"))
		proxy.DropReplies()
		ok, err := try(s, charge(t, "k"))
		wantUncharged(t, ok, err, false)
	})
	t.Run("a queue", func(t *testing.T) {
		g := newGate(t)
		s := ratelimit.Must(redisstore.New(g, redisstore.Config{MaxDenials: -1, MaxInFlight: 1, MaxQueue: 1}))
		first := make(chan error)
		go func() {
			_, err := tryFor(100*time.Millisecond, s, charge(t, "first"))
			first <- err
		}()
		<-g.arrived
		queued := make(chan error)
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			_, err := tryIn(ctx, s, charge(t, "k"))
			queued <- err
		}()
		for {
			if ok, err := tryFor(time.Millisecond, s, charge(t, "k")); errors.Is(err, redisstore.ErrQueueFull) {
				wantUncharged(t, ok, err, true)
				break
			}
		}
		leave()
		wantUncharged(t, false, <-queued, true)
		wantUncharged(t, false, <-first, false) // it is on its way
		close(g.open)
		s.Close()
		ok, err := try(s, charge(t, "k"))
		wantUncharged(t, ok, err, true)
	})
}
