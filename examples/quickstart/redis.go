package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// openRedis returns a client of the Redis at url, or of an embedded one if url is empty, and says which.
func openRedis(ctx context.Context, url string) (client *redis.Client, uses string, closeAll func(), err error) {
	if url == "" {
		return embeddedRedis()
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, "", nil, fmt.Errorf("-redis: must be like redis://host:port/db: %w", err)
	}
	options.ContextTimeoutEnabled = true // see redisstore.Client
	client = redis.NewClient(options)
	uses = fmt.Sprintf("Redis at %s, database %d", options.Addr, options.DB)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		uses += fmt.Sprintf(", which does not answer (%v): all but /login is let through until it does", err)
	}
	return client, uses, func() { client.Close() }, nil
}

func embeddedRedis() (*redis.Client, string, func(), error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, "", nil, fmt.Errorf("embedded Redis: %w", err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})

	// A miniredis lets keys expire only when told that time has passed.
	ticker, done := time.NewTicker(time.Second), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				server.FastForward(time.Second)
			case <-done:
				return
			}
		}
	}()
	closeAll := func() {
		ticker.Stop()
		close(done)
		client.Close()
		server.Close()
	}
	return client, "embedded miniredis, for this process alone (use -redis for a real one)", closeAll, nil
}
