package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

var diagnoseCommand = &command{
	name:  "diagnose",
	short: "Checks Redis, and the client that a URL makes.",
	long: `It prints what redisstore.Store.Diagnose finds about rights, version, eviction, memory, clock and speed:
a sentence for each problem, which says what would be right. On a Cluster it checks all masters. It charges buckets that only it uses, for some seconds.`,
	examples: []string{"ratelimit diagnose -redis redis://localhost:6379", "ratelimit diagnose -redis redis://node-1:6379 -cluster -prefix shop"},
	prepare: func(f *flags) func(context.Context, *env) error {
		r := defineRedis(f)
		return func(ctx context.Context, e *env) error {
			if err := e.none(); err != nil {
				return err
			}
			return r.with(ctx, func(bounded context.Context, c *connection) error { return diagnose(ctx, bounded, c, e) })
		}
	},
}

// answersAtAll reports whether a server answers, be it with an error.
func (c *connection) answersAtAll(ctx context.Context) bool {
	isAnswer := func(err error) bool { return err == nil || errors.As(err, new(redis.Error)) }
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		return isAnswer(c.client.Ping(ctx).Err())
	}
	var one atomic.Bool
	err := cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		if isAnswer(node.Ping(ctx).Err()) {
			one.Store(true)
		}
		return nil
	})
	return one.Load() || err != nil && isAnswer(err) // such as that of a server that is no cluster
}

func diagnose(ctx, bounded context.Context, c *connection, e *env) error {
	answers := make(chan bool, 1)
	go func() { answers <- c.answersAtAll(bounded) }()
	findings := c.store.Diagnose(bounded)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(findings) == 0 {
		fmt.Fprintf(e.out, "%s: %s\n", c.server, e.paint.In(report.Green, "no findings"))
		return nil
	}
	fmt.Fprintf(e.out, "%s: %s\n", c.server, e.paint.In(report.Red, numbers.Of(int64(len(findings)), "finding")))
	for _, finding := range findings {
		fmt.Fprintf(e.out, "%s %s\n", e.paint.In(report.Yellow, "-"), strings.Join(report.Wrap(showLong(finding), 96), "\n  "))
	}
	if !<-answers {
		return ended(failed)
	}
	return ended(found)
}
