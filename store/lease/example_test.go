package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// counted stands for a redisstore.Store, and counts its calls.
type counted struct {
	store.Store
	calls atomic.Int64
}

func (c *counted) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	c.calls.Add(1)
	return c.Store.Take(ctx, charges, states)
}

// A key that is used often costs few calls of the store.
func ExampleNew() {
	buckets := memstore.New(memstore.Config{})
	defer buckets.Close()
	inner := &counted{Store: buckets}
	s := lease.New(inner, lease.Config{})
	defer s.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s}))
	partner := ratelimit.Policy{Name: "partner", Limit: ratelimit.PerSecond(10_000)}

	allowed := 0
	for range 5000 {
		if result, err := limiter.Take(context.Background(), partner, "partner:7", 1); err == nil && result.Allowed {
			allowed++
		}
	}
	fmt.Println(allowed, "allowed, in fewer than 500 calls:", inner.calls.Load() < 500)
	// Output:
	// 5000 allowed, in fewer than 500 calls: true
}
