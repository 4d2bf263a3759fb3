// Worker does jobs of a queue. Several processes share the queue and a limit, in one Redis. A job costs as many tokens
// as it makes calls of another API. The program runs on an embedded Redis unless -redis names a real one.
//
//	go run ./examples/worker [-redis redis://host:port/db] [-add 50] [-workers 8] [-limit "10/1s burst 20"] [-hold 30s]
//
// SIGTERM and Ctrl-C stop it: it takes no more jobs, finishes those that run, and puts back those that wait.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func main() {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(stop, cancel) // a second signal ends the process at once
	switch err := run(stop, os.Args[1:], os.Stdout); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage): // the flag package has printed it
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

// timeout is how long a call of Redis may take. A job can wait longer than the client of a request.
const timeout = 5 * time.Second

// run does jobs until stop ends.
func run(stop context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	redisURL := flags.String("redis", "", "`URL` of a Redis, as redis://host:port/db (default: an embedded one)")
	add := flags.Int("add", 50, "how many jobs to put into the queue first")
	workers := flags.Int("workers", 8, "how many jobs to do at a time")
	hold := flags.Duration("hold", 30*time.Second, "a job that is not done after this time goes to another worker; one that would wait for its tokens for half of it is put back")
	var limit ratelimit.Limit
	flags.TextVar(&limit, "limit", ratelimit.PerSecond(10).WithBurst(20), "calls of the API, by all processes together")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *add < 0, *workers < 1, *hold < time.Second:
		return fmt.Errorf("-add %d, -workers %d, -hold %v: must be at least 0, 1 and 1s", *add, *workers, *hold)
	}

	client, url, closeRedis, err := openRedis(*redisURL)
	if err != nil {
		return err
	}
	defer closeRedis()
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	defer buckets.Close() // before its client: until the last tokens are given back
	limiter, err := ratelimit.New(ratelimit.Config{
		Store:      buckets,
		Timeout:    timeout,
		MaxWaiting: 2 * *workers, // one key gets at most half of the places
	})
	if err != nil {
		return err
	}
	defer limiter.Close()

	jobs := &queue{client: client, key: "worker-example:jobs", hold: *hold}
	w := &worker{limiter: limiter, partner: partner(limit, *hold), jobs: jobs, log: log.New(out, "", log.LstdFlags|log.Lmicroseconds)}
	if _, err := limiter.Peek(stop, w.partner, partnerKey); err != nil {
		return err
	}
	if err := jobs.add(newJobs(*add)...); err != nil {
		return err
	}
	fmt.Fprintf(out, "Limit: %v, for all processes together\n", limit)
	fmt.Fprintf(out, "More:  go run ./examples/worker -add 0 -redis %s\n", url)
	fmt.Fprintf(out, "Stop:  Ctrl-C, or kill -TERM %d\n\n", os.Getpid())

	var running sync.WaitGroup
	for range *workers {
		running.Go(func() { w.work(stop) })
	}
	running.Wait() // until each job is done or put back
	left, err := jobs.left()
	w.log.Printf("stopped, %d jobs left", left)
	return err
}

// openRedis returns a client for the Redis at url, or for an embedded one if url is empty.
func openRedis(url string) (client *redis.Client, at string, closeAll func(), err error) {
	stopEmbedded := func() {}
	if url == "" {
		server, err := miniredis.Run()
		if err != nil {
			return nil, "", nil, fmt.Errorf("embedded Redis: %w", err)
		}
		url, stopEmbedded = "redis://"+server.Addr(), server.Close
	}
	options, err := redisstore.Options(url)
	if err != nil {
		stopEmbedded()
		return nil, "", nil, fmt.Errorf("-redis: %w", err)
	}
	options.ReadTimeout, options.WriteTimeout = timeout, timeout
	client = redis.NewClient(options)
	return client, url, func() { client.Close(); stopEmbedded() }, nil
}
