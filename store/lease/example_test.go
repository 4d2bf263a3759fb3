package lease_test

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// counting counts the calls of a store.
type counting struct {
	store.Store
	calls int
}

func (c *counting) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	c.calls++
	return c.Store.Take(ctx, charges, states)
}

// One key that is used 1,000 times costs far fewer calls of the store.
func ExampleNew() {
	buckets := ratelimit.Must(memstore.New(memstore.Config{})) // stands for your redisstore
	defer buckets.Close()
	counted := &counting{Store: buckets}
	s := ratelimit.Must(lease.New(counted, lease.Config{}))
	defer s.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s}))
	defer limiter.Close()

	jobs := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerHour(10_000)}
	for range 1000 {
		if _, err := limiter.Take(context.Background(), jobs, "member:5", 1); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(counted.calls < 100)
	// Output:
	// true
}
