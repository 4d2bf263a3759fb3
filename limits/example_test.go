package limits_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/limits"
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
	changed, err := limits.Watch(ctx, limiter, buckets, limits.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}

	err = changed.Set(ctx, limits.Change{Policy: "api", Limit: "120/1m burst 20", By: "alice", Why: "sale"})
	fmt.Println(limiter.Policies()[0].Limit, err)

	err = changed.Set(ctx, limits.Change{Policy: "api", Limit: "6000/1m burst 20", By: "alice"}) // a mistake
	var factor *limits.FactorError
	fmt.Println(errors.As(err, &factor), limiter.Policies()[0].Limit)
	fmt.Println(err)

	err = changed.End(ctx, limits.Change{Policy: "api", By: "alice", Why: "sale is over"})
	fmt.Println(limiter.Policies()[0].Limit, err)
	// Output:
	// 120/1m burst 20 <nil>
	// true 120/1m burst 20
	// limits: api: the rate of 6000/1m burst 20 is 100 times that of the program's 60/1m burst 10: must be at most 10 times higher or lower, unless it is forced
	// 60/1m burst 10 <nil>
}

// The command has no Limiter, and knows the program's limits from a file.
func ExampleEditor() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	editor := limits.Editor{
		Keeper:  ratelimit.Must(redisstore.New(client, redisstore.Config{})),
		Program: map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60)},
	}
	ctx := context.Background()
	err = editor.Set(ctx, limits.Change{Policy: "api", Limit: "90/1m", Was: "60/1m", By: "cli:ann@laptop"})
	fmt.Println(err)
	list, err := editor.List(ctx)
	for _, e := range list {
		fmt.Println(e.Policy, e.InForce, "instead of", e.Program, "by", e.By)
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// api 90/1m instead of 60/1m by cli:ann@laptop
	// <nil>
}
