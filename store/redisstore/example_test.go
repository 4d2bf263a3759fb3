package redisstore_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func ExampleNew() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	options, err := redisstore.Options("redis://" + server.Addr() + "/0")
	if err != nil {
		fmt.Println(err)
		return
	}
	client := redis.NewClient(options)
	defer client.Close()
	buckets := redisstore.New(client, redisstore.Config{Prefix: "my-api"})
	defer buckets.Close()

	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets}))
	mails := ratelimit.Policy{Name: "mails", Limit: ratelimit.PerHour(100)}
	result, err := limiter.Take(context.Background(), mails, "member:5", 1)
	fmt.Println(result.Allowed, result.Remaining, err)
	fmt.Println(server.Keys())
	// Output:
	// true 99 <nil>
	// [my-api:{member:5}:mails]
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
