package observe_test

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// Find the keys that a limit hits.
func ExampleTop() {
	top := observe.NewTop(observe.TopConfig{})
	limiter, err := ratelimit.New(ratelimit.Config{Observe: top.Observe})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	api := ratelimit.Policy{Name: "api", Limit: ratelimit.PerMinute(2)}
	for range 5 {
		limiter.Take(context.Background(), api, "member:5", 1)
	}
	limiter.Take(context.Background(), api, "member:6", 1)

	for _, k := range top.Heaviest("api", 10).Keys {
		fmt.Printf("%s: %d requests (%.0f %%), %d denied\n", k.Key, k.Requests, k.Share*100, k.Denied)
	}
	// Output:
	// member:5: 5 requests (83 %), 3 denied
	// member:6: 1 requests (17 %), 0 denied
}
