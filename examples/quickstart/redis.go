package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// openRedis returns a client for the Redis at url, or for an embedded one if url is empty. uses describes it.
func openRedis(url string) (client *redis.Client, uses string, closeAll func(), err error) {
	if url == "" {
		return embeddedRedis()
	}
	options, err := redisstore.Options(url)
	if err != nil {
		return nil, "", nil, fmt.Errorf("-redis: %w", err)
	}
	client = redis.NewClient(options)
	uses = fmt.Sprintf("Redis at %s, database %d", options.Addr, options.DB)
	return client, uses, func() { client.Close() }, nil
}

// printFindings prints the problems of the Redis of buckets.
func printFindings(ctx context.Context, out io.Writer, buckets *redisstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, finding := range buckets.Diagnose(ctx) {
		if strings.Contains(finding, "does not answer") {
			finding += " Until it does, limits are local, and /login answers 503."
		}
		fmt.Fprintf(out, "Diagnosis: %s\n", finding)
	}
}

// embeddedTimeout is for decisions with the embedded Redis. It runs in this process, so it cannot be unavailable. It
// is much slower than a real one, so under load a shorter timeout would look like an outage.
const embeddedTimeout = 5 * time.Second

func embeddedRedis() (*redis.Client, string, func(), error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, "", nil, fmt.Errorf("embedded Redis: %w", err)
	}
	options, err := redisstore.Options("redis://" + server.Addr())
	if err != nil {
		return nil, "", nil, err
	}
	options.ReadTimeout, options.WriteTimeout = embeddedTimeout, embeddedTimeout
	client := redis.NewClient(options)

	// In a miniredis, keys expire only when it is told the time.
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
