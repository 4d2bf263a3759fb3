// Command ratelimit looks at buckets in Redis, changes limits, explains what would happen to a request, and simulates
// policies on access logs. Run it without arguments for a list. Its flags, output and exit statuses are experimental: a
// minor release may change them.
package main

import (
	"context"
	"os"
	"os/signal"
	_ "time/tzdata" // for quotas, on hosts without time zones

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends a command that does not end
	status := command.Run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
