package fallback_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A member that has used its tokens stays limited while Redis is down. Other members are allowed.
func ExampleNew() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	options, err := redisstore.Options("redis://" + server.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	client := redis.NewClient(options)
	defer client.Close()
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	defer buckets.Close()

	s := ratelimit.Must(fallback.New(buckets, nil, fallback.Config{Logger: slog.New(slog.DiscardHandler)}))
	defer s.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s, Timeout: time.Second}))
	defer limiter.Close()

	mails := ratelimit.Policy{Name: "mails", Limit: ratelimit.PerDay(1)}
	take := func(key string) {
		result, err := limiter.Take(context.Background(), mails, key, 1)
		fmt.Println(key, result.Allowed, result.Degraded, err)
	}
	take("member:5")
	server.Close() // the outage
	take("member:5")
	take("member:6")
	// Output:
	// member:5 true false <nil>
	// member:5 false true <nil>
	// member:6 true true <nil>
}
