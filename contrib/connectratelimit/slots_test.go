package connectratelimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/go-tokenbucket/ratelimit"
)

// A call of any kind holds its slot until its handler has returned or panicked.
func TestASlotIsHeldWhileACallRuns(t *testing.T) {
	for name, end := range map[string]func() error{
		"returns": func() error { return nil },
		"fails":   func() error { return errors.New("wrong password") },
		"panics":  func() error { panic("boom") },
	} {
		policy := perIP("slots", ratelimit.Concurrency(1))
		limits := newLimits(t, ratelimit.Config{})
		running, ends := make(chan struct{}), make(chan struct{}, 1)
		run := func() error {
			running <- struct{}{}
			<-ends
			return end()
		}
		options := []connect.HandlerOption{connect.WithRecover(onPanic), with(limits.Interceptor(policy))}
		login := func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
			if err := run(); err != nil {
				return nil, err
			}
			return echo(ctx, req)
		}
		calls := map[string]func() reply{}
		for client, call := range callers(t, serveLogin(t, login, options...)) {
			calls[client] = func() reply { return call(t.Context(), search) }
		}
		for client, stream := range streamers(t, serve(t, files{run}.handler(options...))) {
			for _, procedure := range []string{upload, watch, talk} {
				calls[client+procedure] = func() reply { _, r := stream(t.Context(), procedure, "a"); return r }
			}
		}
		for client, call := range calls {
			t.Run(client+" that "+name, func(t *testing.T) {
				for range 2 { // the second time because the first call has ended
					ended := make(chan reply, 1)
					go func() { ended <- call() }()
					<-running
					r := call()
					if h := lines(t, r.header); r.message != "too many requests at once" && r.status != 429 || h["X-Ratelimit-Limit"] != "1" || h["X-Ratelimit-Reset"] != "" || h["Retry-After"] != "1" || r.retry != time.Second {
						t.Errorf("a second call: %+v", r)
					}
					ends <- struct{}{}
					<-ended
				}
				if n := left(t, limits, policy); n != 1 {
					t.Errorf("%d slots are free", n)
				}
			})
		}
	}
}
