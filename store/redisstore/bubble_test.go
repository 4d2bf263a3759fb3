package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// The tests of a program may have some Stores in bubbles and others outside. What one Store reuses must not reach
// another: code outside of a bubble that uses a channel of it ends the program, and in a bubble the time stands still
// while a call waits on a channel from outside.
func TestStoresInsideAndOutsideOfBubbles(t *testing.T) {
	const atOnce = 40 // under the race detector, a sync.Pool drops some of what it is given
	outside := ratelimit.Must(redisstore.New(redistest.Start(t).Client(), redisstore.Config{}))
	defer outside.Close()
	takeOutside := func() {
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				if ok, err := tryFor(10*time.Second, outside, charge(t, "outside")); !ok || err != nil {
					t.Errorf("a call outside: ok %t, error %v", ok, err)
				}
			})
		}
		all.Wait()
	}
	takeOutside()
	w := &wire{send: func(context.Context, int) error { time.Sleep(time.Millisecond); return nil }}
	onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
		var all []*attempt
		for range 2 * atOnce {
			all = append(all, beginFor(t, time.Second, s, "inside"))
		}
		for _, o := range all {
			if <-o.done; !o.ok || o.err != nil {
				t.Errorf("a call inside: ok %t, error %v", o.ok, o.err)
			}
		}
		w.idle(t, s)
	})
	takeOutside()
}
