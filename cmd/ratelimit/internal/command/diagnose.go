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
		r, asJSON := defineRedis(f), f.is("json", "write JSON")
		return func(ctx context.Context, e *env) error {
			if err := e.none(); err != nil {
				return err
			}
			return r.with(ctx, func(bounded context.Context, c *connection) error { return diagnose(ctx, bounded, c, *asJSON, e) })
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

// diagnosisJSON is a diagnosis for programs.
type diagnosisJSON struct {
	Server   string   `json:"server"`
	Answers  bool     `json:"answers"` // be it with an error
	Findings []string `json:"findings"`
}

func diagnose(ctx, bounded context.Context, c *connection, asJSON bool, e *env) error {
	answers := make(chan bool, 1)
	go func() { answers <- c.answersAtAll(bounded) }()
	findings := c.store.Diagnose(bounded)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d := diagnosisJSON{c.server, len(findings) == 0 || <-answers, append([]string{}, findings...)}
	if asJSON {
		if err := writeJSON(e.out, d); err != nil {
			return err
		}
	} else {
		d.write(e)
	}
	switch {
	case len(findings) == 0:
		return nil
	case !d.Answers:
		return ended(failed)
	}
	return ended(found)
}

func (d *diagnosisJSON) write(e *env) {
	if len(d.Findings) == 0 {
		fmt.Fprintf(e.out, "%s: %s\n", d.Server, e.paint.In(report.Green, "no findings"))
		return
	}
	fmt.Fprintf(e.out, "%s: %s\n", d.Server, e.paint.In(report.Red, numbers.Of(int64(len(d.Findings)), "finding")))
	for _, finding := range d.Findings {
		fmt.Fprintf(e.out, "%s %s\n", e.paint.In(report.Yellow, "-"), strings.Join(report.Wrap(showLong(finding), e.sentences()-4), "\n  "))
	}
}
