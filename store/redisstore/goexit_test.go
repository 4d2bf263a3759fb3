package redisstore_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A hook that ends its goroutine ends only the commands that it has before it.
func TestCallersAreAnsweredIfAHookCallsGoexit(t *testing.T) {
	crossSlot := redisError("CROSSSLOT Keys in request don't hash to the same slot")
	for _, tt := range []struct {
		name     string
		deadline time.Duration // of the callers; 0: none
		after    time.Duration // the hook takes so long first
		pipeline bool
	}{
		{name: "a batch", deadline: time.Second},
		{name: "a batch of callers without a deadline"},
		{name: "a batch that all have left", deadline: 50 * time.Millisecond, after: 100 * time.Millisecond},
		{name: "a batch that was handed over", deadline: time.Second, after: 500 * time.Millisecond},
		{name: "a pipeline", deadline: time.Second, pipeline: true},
		{name: "a pipeline of callers without a deadline", pipeline: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &wire{deaf: true}
			onWire(t, w, redisstore.Config{MaxInFlight: 1, Logger: quiet}, func(t *testing.T, s *redisstore.Store) {
				first := make(chan struct{})
				w.send = func(_ context.Context, n int) error {
					switch {
					case n == 1:
						<-first
					case n == 2 && tt.pipeline:
						return crossSlot // all that follows goes by pipelines
					default:
						time.Sleep(tt.after)
						runtime.Goexit()
					}
					return nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				before := beginFor(t, time.Minute, s, "first")
				var all []*attempt
				for _, key := range []string{"a", "b", "b", "c"} {
					all = append(all, begin(ctx, s, charge(t, key)))
				}
				close(first)
				before.want(t, "the first", true, 0)
				if tt.name == "a batch that was handed over" {
					beginFor(t, 100*time.Millisecond, s, "hurried").want(t, "one behind them", false, 100*time.Millisecond)
				}
				for i, a := range all {
					a.want(t, fmt.Sprint("caller ", i), false, min(tt.after, cmp.Or(tt.deadline, time.Hour)))
					if tt.after < 50*time.Millisecond && !strings.Contains(fmt.Sprint(a.err), "Goexit") {
						t.Errorf("caller %d: error %v", i, a.err)
					}
				}
				time.Sleep(time.Second)
				w.idle(t, s)
			})
		})
	}
}

// A lone caller sends its call on its own goroutine, which is the one that ends. Those behind it are served.
func TestAGoexitEndsTheGoroutineOfALoneCallerAlone(t *testing.T) {
	w := new(wire)
	onWire(t, w, redisstore.Config{MaxInFlight: 1}, func(t *testing.T, s *redisstore.Store) {
		w.send = func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(10 * time.Millisecond)
				runtime.Goexit()
			}
			return nil
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, err := tryFor(time.Second, s, charge(t, "lone"))
			t.Errorf("it goes on, with error %v", err)
		}()
		synctest.Wait()
		behind := beginFor(t, time.Second, s, "behind")
		<-ended
		behind.want(t, "one behind it", true, 10*time.Millisecond)
		w.idle(t, s)
	})
}
