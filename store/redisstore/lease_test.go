package redisstore_test

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A Store whose lease is twice that of another one keeps its slots.
func TestALeaseMayHalveInARollout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	old := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{SlotLease: 4 * time.Second}))
	defer old.Close()
	next := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{SlotLease: 2 * time.Second}))
	defer next.Close()
	c := slot(t, "k", 1)
	take(t, old, c)
	for range 50 {
		if take(t, next, c).Allowed {
			t.Fatal("the slot was granted twice")
		}
		time.Sleep(100 * time.Millisecond)
	}
	if take(t, old, costs(c, -1)).Lost {
		t.Error("the slot was lost")
	}
}
