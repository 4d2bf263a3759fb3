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
		buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
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

// For redis.NewClient. A command then ends with the deadline of its decision, and is never sent twice.
func ExampleOptions() {
	options, err := redisstore.Options("rediss://limiter:secret@redis.example:6380/2?pool_size=20")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(options.Addr, options.DB, options.PoolSize, options.ContextTimeoutEnabled)
	// Output:
	// redis.example:6380 2 20 true
}

// For redis.NewClusterClient.
func ExampleClusterOptions() {
	options, err := redisstore.ClusterOptions("redis://node-1.example:6379?addr=node-2.example:6379")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(options.Addrs, options.ContextTimeoutEnabled)
	// Output:
	// [node-1.example:6379 node-2.example:6379] true
}
