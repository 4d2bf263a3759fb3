package redisstore_test

import (
	"fmt"

	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

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
