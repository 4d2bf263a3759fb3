package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A report is all that a run of the program found out.
type report struct {
	environment string
	plan        plan
	findings
}

// conditions say on what the figures were measured, and how often.
func (r report) conditions() string {
	return fmt.Sprintf("%s. Medians of %d rounds, each side running %v in a round.", r.environment, r.plan.rounds, r.plan.time)
}

// files are where a report goes. An empty name is none.
type files struct{ markdown, svg string }

func (f files) write(r report) error {
	if f.svg != "" {
		if err := write(f.svg, r.chart().svg()); err != nil {
			return err
		}
	}
	if f.markdown == "" {
		return nil
	}
	image := ""
	if f.svg != "" {
		path, err := filepath.Rel(filepath.Dir(f.markdown), f.svg)
		if err != nil {
			return err
		}
		image = filepath.ToSlash(path)
	}
	return write(f.markdown, r.markdown(image))
}

func write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o666)
}

// markdown returns the report as a document, with the chart if there is an image of it.
func (r report) markdown(image string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# Benchmarks\n\nWritten by `make bench`. %s\n", r.conditions())
	if image != "" {
		fmt.Fprintf(&text, "\n![%s](%s)\n", chartTitle, image)
	}
	fmt.Fprintf(&text, "\n%s\n## Against others\n\n%s", method, tableHead)
	for _, row := range r.rows {
		fmt.Fprintln(&text, row)
	}
	if len(r.loads) > 0 {
		text.WriteString("\n## Under load\n")
	}
	for _, t := range r.loads {
		fmt.Fprintf(&text, "\n%s", t)
	}
	return text.String()
}

// method says how it was measured, for those who only see the figures.
const method = `## How it was measured

The sides take turns within one run, and every second round in reverse order. What counts is the ratio of their
medians, not a figure: client, server and Redis share the cores named above. After the ratio is the range of
those of single rounds, which tells how much the machine was disturbed.

Each comparison in Redis has a server of its own, without persistence, reached over loopback. Every limiter has a
client of its own: those on go-redis with ` + "`ContextTimeoutEnabled`" + ` and a pool of the default size, rueidis as its
README makes it. Buckets and connections are made before it is measured. With one caller the sides take turns
every 500 calls, and each call has a timeout. Under load every caller is a goroutine that calls again as soon as it
is answered, with one context for a whole turn that can be cancelled and has a deadline. A call that fails ends the
run.

Where all is allowed, buckets are so large and slow that none becomes empty or full. The CPU of Redis is what its
process has used according to INFO, and the allocations are those of the client's whole process.

What redisstore was once refused it refuses by itself until the bucket can pay, where the others ask Redis each
time; all else is decided in Redis. redisstore asks about many calls in one script; of the others, rueidis and
AutoPipeline share pipelines among callers. ulule/limiter counts in fixed windows, which is less work than a
bucket. throttled takes no part where all want one key: it reads, then compares and swaps, and fails after ten
attempts. lease.Store takes many tokens of a key in one call of redisstore and spends them by itself; its rate is
one at which the bucket refills faster than it is emptied.

Over HTTP, a server process of its own answers 256 connections of this one, kept alive, each with the next request
as soon as the last one is answered.
`
