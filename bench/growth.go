package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// growthArgument as the first argument makes this program measure how the limiter grows instead of comparing it with
// others.
const growthArgument = "growth"

// A growth measures how decisions change while one thing grows.
type growth struct {
	name string
	run  func(context.Context, growthPlan) (growthTable, error)
}

// A growthPlan sets how much to measure, and how far things grow.
type growthPlan struct {
	plan
	short bool // stops at a tenth of the size, to check that everything works
}

// upTo returns the sizes for a run. A short run leaves out the largest.
func (p growthPlan) upTo(most int, sizes ...int) []int {
	var kept []int
	for _, size := range sizes {
		if !p.short || size <= most {
			kept = append(kept, size)
		}
	}
	return kept
}

var growths = []growth{
	{"keys in memory", growKeysInMemory},
	{"keys in Redis", growKeysInRedis},
	{"policies", growPolicies},
	{"replicas", growReplicas},
	{"masters", growMasters},
}

const growthUsage = `go run . growth [-short] [-rounds 3] [-time 1s] [-only replicas] [-markdown growth.md]

Measures decisions of the Limiter as the number of keys, policies, replicas or masters grows, and prints a table for each.

`

// measureGrowth is the main function of growthArgument.
func measureGrowth(ctx context.Context, arguments []string) error {
	var p growthPlan
	flags := flag.NewFlagSet(growthArgument, flag.ExitOnError)
	flags.IntVar(&p.rounds, "rounds", 3, "how many `times` each size is measured")
	flags.DurationVar(&p.time, "time", time.Second, "how long each size runs in a round")
	flags.BoolVar(&p.short, "short", false, "one round of 100ms, and smaller sizes: to see that all works")
	only := flags.String("only", "", "measure only the growth of what contains `text`")
	markdown := flags.String("markdown", "", "also write what is printed to `file`")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), growthUsage)
		flags.PrintDefaults()
	}
	flags.Parse(arguments)
	if flags.NArg() > 0 || p.rounds < 1 || p.time <= 0 {
		flags.Usage()
		os.Exit(2)
	}
	if p.short {
		p.plan = plan{rounds: 1, time: 100 * time.Millisecond}
	}
	text := growthReport(report{environment: environment(ctx), plan: p.plan}.conditions())
	fmt.Print(text)
	for _, g := range growths {
		if !strings.Contains(g.name, *only) {
			continue
		}
		table, err := g.run(ctx, p)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Printf("\n## %s\n\nNot measured: %v\n", g.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		fmt.Printf("\n%s", table)
		text += fmt.Sprintf("\n%s", table)
	}
	if *markdown == "" {
		return nil
	}
	return write(*markdown, text)
}

func growthReport(conditions string) string {
	return fmt.Sprintf("# Growth\n\nWritten by `make growth`. %s\n\n%s", conditions, growthMethod)
}

const growthMethod = `In each table one thing grows. The sizes of a table take turns, except those of keys in memory. The client and Redis share
the cores named above. Compare the lines of a table, not figures of different tables or machines.

All calls go through the Limiter. In Redis, each call has its own context, and the client is made by
` + "`redisstore.Options`" + ` or ` + "`ClusterOptions`" + `. Callers are goroutines in one process that call again as soon as they are answered.
All calls are allowed. CPU of Go is the processor time of the process, with the callers. CPU of Redis is that of all
servers. Both are for each call.
`

// growthLimits returns n limits that never empty a bucket. After one token has been taken, a bucket stays in Redis
// for an hour, because many keys are not used again for a long time.
func growthLimits(n int) []ratelimit.Limit {
	limits := make([]ratelimit.Limit, n)
	for i := range limits {
		limits[i] = ratelimit.Limit{Rate: 1, Per: time.Hour + time.Duration(i)*time.Minute, Burst: 500_000}
	}
	return limits
}
