package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A release is asserted while other calls take slots of the key, and a token each. The reply of none of them loses its worth
// because of that: a token cannot be taken a second time.
func TestReleasesDoNotDisturbCallsForSlots(t *testing.T) {
	s := ratelimit.Must(redisstore.New(redistest.Start(t).Client(), redisstore.Config{}))
	defer s.Close()
	token := store.Charge{Policy: "tokens", Limit: ratelimit.Must(store.NewLimit(1_000_000, time.Second, 1_000_000)), Cost: 1}
	var workers sync.WaitGroup
	end := time.Now().Add(500 * time.Millisecond)
	for i := range 64 {
		workers.Go(func() {
			c, token := slot(t, fmt.Sprint(i%8), 1000), token
			token.Key = c.Key
			for time.Now().Before(end) {
				ok, err := tryFor(10*time.Second, s, c, token)
				if !ok || err != nil {
					t.Errorf("%t, %v", ok, err)
					return
				}
				_, _ = try(s, costs(c, -1))
			}
		})
	}
	workers.Wait()
}

// While a server hangs, only one assertion of each key waits for it.
func TestAssertionsDoNotPileUp(t *testing.T) {
	const keys = 50
	w := &wire{deaf: true}
	onWire(t, w, redisstore.Config{MaxBatch: 1}, func(t *testing.T, s *redisstore.Store) {
		for i := range keys {
			take(t, s, slot(t, fmt.Sprint(i), 3))
		}
		back := make(chan struct{})
		w.mu.Lock()
		w.send = func(context.Context, int) error { <-back; return nil }
		w.mu.Unlock()
		time.Sleep(time.Minute)
		if n := redisstore.Assertions(s); n > keys {
			t.Errorf("%d assertions wait after a minute, want at most one of each of %d keys", n, keys)
		}
		close(back)
		w.idle(t, s)
	})
}
