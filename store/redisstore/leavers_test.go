package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestCallersThatLeaveBeforeTheirCallIsSentAreNotCharged(t *testing.T) {
	const leavers = 1000
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.ClientOptions(func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), time.Minute })
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxInFlight: 1, MaxDenials: -1}))
	var log bytes.Buffer
	l, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	policy := ratelimit.Policy{Name: "work", Limit: ratelimit.PerHour(100)}
	shared := charge(t, "shared")
	shared.Limit = limit(t, 1, time.Hour, 5000)
	take(t, s, shared)

	proxy.Delay(time.Minute)
	first := make(chan error, 1)
	go func() {
		_, err := tryFor(time.Minute, s, charge(t, "first"))
		first <- err
	}()
	direct := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	until(t, "the first call has arrived", func() bool { return look(t, direct, charge(t, "first")).Remaining == 99 })

	ctx, leave := context.WithCancel(context.Background())
	var gone, stayed sync.WaitGroup
	for i := range leavers {
		gone.Go(func() {
			if i%10 == 0 {
				if r, err := l.Take(ctx, policy, "ip:192.0.2.1", 1); r.Allowed || !errors.Is(err, context.Canceled) {
					t.Errorf("a Take that was given up: %+v, %v", r, err)
				}
				return
			}
			if ok, err := tryIn(ctx, s, shared); ok || !errors.Is(err, context.Canceled) {
				t.Errorf("ok %t, error %v, want the context's", ok, err)
			}
		})
		if i%50 == 0 {
			stayed.Go(func() { takeAll(t, s, shared) })
		}
	}
	time.Sleep(200 * time.Millisecond) // so that most of them wait; it is right either way
	begin := time.Now()
	leave()
	gone.Wait()
	if took := time.Since(begin); took > patient { // replies come after a minute, unless they pass
		t.Errorf("they returned after %v", took)
	}
	proxy.Pass()
	stayed.Wait()
	if err := <-first; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, direct, 5000-1-leavers/50, shared) // one before, and those that stayed
	if n := client.Exists(t.Context(), "ratelimit:{ip:192.0.2.1}:work").Val(); n != 0 {
		t.Error("calls that were given up were charged")
	}
	if log.Len() > 0 {
		t.Errorf("logged as a failure: %q", log.String())
	}
}
