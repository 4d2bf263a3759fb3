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
	found       [sections]findings
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
	fmt.Fprintf(&text, "\n%s", method)
	for s, found := range r.found {
		if len(found.rows) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n## %v\n\n%s", section(s), tableHead)
		for _, row := range found.rows {
			fmt.Fprintln(&text, row)
		}
		for _, t := range found.loads {
			fmt.Fprintf(&text, "\n%s", t)
		}
	}
	return text.String()
}

// method says how it was measured, for those who only see the figures.
const method = `## How it was measured

The sides take turns within one run, and every second round in reverse order. What counts is the ratio of their
medians, not a figure: client, server and Redis share the cores named above. After the ratio is the range of
those of single rounds, which tells how much the machine was disturbed.

Each comparison in Redis has servers of its own, without persistence, reached over loopback. Every limiter has a
client of its own, with a pool of the default size. A ` + "`client of redisstore.Options`" + ` is made as in the README, by
` + "`redisstore.Options`" + ` or ` + "`ClusterOptions`" + `, and so are all others but those ` + "`of defaults`" + `, which have go-redis's own settings.
Both sides have the same. A Ring has the values of ` + "`redisstore.Options`" + `, and rueidis is as its README makes it.
Buckets and connections are made before it is measured.

Through the Limiter, each call has a context of its own that can be cancelled, as net/http gives to each request. A call of
` + "`Limiter.Handler`" + ` is a request that is served without a network, against a handler that calls redis_rate and sets the
same headers. Two policies of one key are two calls of redis_rate, one after the other. With one caller the sides
take turns every 500 calls. Under load every caller is a goroutine that calls again as soon as it is answered. The
store alone is called under load with one context for a whole turn, and with charges that are compiled. A call that
fails ends the run.

The CPU of Go is that of this whole process, in its own code and in the system's (getrusage), divided by the calls: the callers
are part of it, and the same for all sides. The CPU of Redis is that of all server processes, by INFO. The allocations
are those of this process.

Where all is allowed, buckets are so large and slow that none becomes empty or full. What our store was once
refused it refuses by itself until the bucket can pay, where the others ask Redis each time; all else is decided in
Redis. redisstore asks about many calls in one script; of the others, rueidis and AutoPipeline share pipelines among
callers. ulule/limiter counts in fixed windows, which is less work than a bucket. throttled takes no part where all
want one key: it reads, then compares and swaps, and fails after ten attempts. lease.Store takes many tokens of a key
in one call of redisstore and spends them by itself; its rate is one at which the bucket refills faster than it is
emptied.

The handlers written by hand are the floor of a middleware in memory. They find the address, charge one map of
buckets under one lock, and set the three headers. The second one also puts its decision into the context of the
request, which net/http copies for that.

Over HTTP, a server process of its own answers 256 connections of this one, kept alive, each with the next request
as soon as the last one is answered.
`
