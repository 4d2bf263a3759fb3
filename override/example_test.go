package override_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func ExampleWatch() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(10)}},
	}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changed, err := override.Watch(ctx, limiter, buckets, override.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}

	err = changed.Set(ctx, override.Change{Policy: "api", Limit: "120/1m burst 20", By: "alice", Why: "sale"})
	fmt.Println(limiter.Policies()[0].Limit, err)

	friday := time.Now().Add(72 * time.Hour)
	err = changed.Set(ctx, override.Change{Policy: "api", Key: "ip:192.0.2.7", Limit: "600/1m burst 100", Until: friday, By: "alice", Why: "launch"})
	for _, e := range changed.List(func(_, key string) bool { return key != "" }) {
		fmt.Println(e.Key, e.InForce, "by", e.By, err)
	}

	err = changed.Set(ctx, override.Change{Policy: "api", Limit: "6000/1m burst 20", By: "alice"}) // a mistake
	var factor *override.FactorError
	fmt.Println(errors.As(err, &factor), limiter.Policies()[0].Limit)
	fmt.Println(err)

	err = changed.End(ctx, override.Change{Policy: "api", By: "alice", Why: "sale is over"})
	fmt.Println(limiter.Policies()[0].Limit, err)
	// Output:
	// 120/1m burst 20 <nil>
	// ip:192.0.2.7 600/1m burst 100 by alice <nil>
	// true 120/1m burst 20
	// override: api: the rate of 6000/1m burst 20 is 100 times that of the program's 60/1m burst 10: must be at most 10 times higher or lower, unless it is forced
	// 60/1m burst 10 <nil>
}

// The command has no Limiter, and knows the program's limits from a file.
func ExampleEdit() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	ctx := context.Background()
	overrides, err := override.Edit(ctx, buckets, map[string][]ratelimit.Limit{"api": {ratelimit.PerMinute(60)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = overrides.Set(ctx, override.Change{Policy: "api", Limit: "90/1m", Was: "60/1m", By: "cli:ann@laptop"})
	fmt.Println(err)
	for _, e := range overrides.List(nil) {
		fmt.Println(e.Policy, e.InForce, "instead of", e.Program, "by", e.By)
	}
	// Output:
	// <nil>
	// api 90/1m instead of 60/1m by cli:ann@laptop
}
