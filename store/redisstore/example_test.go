package redisstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// Two replicas share one limit, because their buckets are in the same Redis.
func ExampleNew() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	options, err := redisstore.Options("redis://" + server.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	mails := ratelimit.Policy{Name: "mails", Limit: ratelimit.PerDay(2)}
	for range 2 { // replicas
		client := redis.NewClient(options)
		buckets := redisstore.New(client, redisstore.Config{})
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets, Timeout: time.Second}))
		for range 2 {
			result, err := limiter.Take(context.Background(), mails, "member:5", 1)
			fmt.Println(result.Allowed, result.Remaining, err)
		}
		limiter.Close()
		buckets.Close()
		client.Close()
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
	// false 0 <nil>
}
