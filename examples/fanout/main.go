// Fanout sends messages to several tenants through one provider. Each tenant has a limit, and so has the provider, for
// all tenants together. The buckets are in memory. With -redis they are in a Redis, and several processes share them.
//
//	go run ./examples/fanout [-redis redis://host:port/db] [-messages 30] [-tenant "5/1s"] [-all "10/1s"]
//
// SIGTERM and Ctrl-C stop it: it sends no more messages, and finishes those that it has begun.
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
	"syscall"
	"time"

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
		fmt.Fprintln(os.Stderr, "fanout:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

// timeout is how long a call of Redis may take. A message can wait longer than the client of a request.
const timeout = 5 * time.Second

// run sends messages until all are sent, or until stop ends.
func run(stop context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fanout", flag.ContinueOnError)
	redisURL := flags.String("redis", "", "`URL` of a Redis, as redis://host:port/db (default: the buckets are in memory)")
	messages := flags.Int("messages", 30, "how many messages the largest tenant gets")
	perTenant, forAll := ratelimit.PerSecond(5), ratelimit.PerSecond(10)
	flags.TextVar(&perTenant, "tenant", perTenant, "messages to each tenant, from all processes together")
	flags.TextVar(&forAll, "all", forAll, "messages to all tenants, from all processes together")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	cfg := ratelimit.Config{Timeout: timeout}
	if *redisURL != "" {
		options, err := redisstore.Options(*redisURL)
		if err != nil {
			return fmt.Errorf("-redis: %w", err)
		}
		options.ReadTimeout, options.WriteTimeout = timeout, timeout
		client := redis.NewClient(options)
		defer client.Close()
		buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
		defer buckets.Close() // before its client: until the last tokens are given back
		cfg.Store = buckets
	}
	limiter, err := ratelimit.New(cfg)
	if err != nil {
		return err
	}
	defer limiter.Close()

	s := &sender{
		limiter:  limiter,
		tenant:   tenantPolicy(perTenant),
		provider: providerPolicy(forAll),
		log:      log.New(out, "", log.LstdFlags|log.Lmicroseconds),
	}
	if _, err := limiter.Peek(stop, s.provider, providerKey); err != nil {
		return err
	}
	fmt.Fprintf(out, "Limits: %v for each tenant, %v for all\n", perTenant, forAll)
	fmt.Fprintf(out, "Stop:   Ctrl-C, or kill -TERM %d\n\n", os.Getpid())
	left := s.fanOut(stop, map[string]int{"large": *messages, "medium": *messages / 3, "small": *messages / 10})
	s.log.Printf("stopped, %d messages left", left)
	return nil
}
