package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A test moves the clock of the store instead of waiting.
func ExampleNew() {
	now := time.Date(2026, 5, 23, 10, 20, 30, 0, time.UTC)
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return now }}))
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets}))
	defer limiter.Close()

	mails := ratelimit.Policy{Name: "mails", Limit: ratelimit.PerMinute(1)}
	for range 3 {
		result, err := limiter.Take(context.Background(), mails, "member:5", 1)
		fmt.Println(result.Allowed, result.RetryAfter, err)
		now = now.Add(30 * time.Second)
	}
	// Output:
	// true 0s <nil>
	// false 30s <nil>
	// true 0s <nil>
}
