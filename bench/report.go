package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A report is all results of a run of the program.
type report struct {
	environment string
	plan        plan
	found       [sections]findings
}

// conditions describes the machine, the versions and the number of rounds.
func (r report) conditions() string {
	return fmt.Sprintf("%s. Medians of %d rounds, each side running %v in a round.", r.environment, r.plan.rounds, r.plan.time)
}

// files are the files for a report. An empty name means no file.
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

// markdown returns the report as a document. It has the chart if image is not empty.
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

// method explains the measurement to readers of the figures.
const method = `## How to read it

A row compares this library with another one. What counts is the ratio of the two, not a figure: the client, the server and
Redis share the cores named above. After the ratio is the range of the ratios of single rounds, which shows how much
the machine was disturbed. The targets are those that this project has set for itself. A target that is missed, here or
on your machine, is not a fault of an installation.

What limits each kind of row:

| Rows | What limits them |
|---|---|
| 1 caller | the round trip. The rest is Redis's work on one script, and three commands of a script take about half of that. |
| many callers, 10,000 keys | the core on which Redis runs scripts: a read, a sum and a write for each key |
| many callers, one key | the processor time of the callers: to wait, to be woken, and the memory that each of them touches |
| refusals | the processor time of one call, of which the context that its caller makes is a part |
| two policies | as 1 caller, with one round trip instead of two |
| Cluster, Ring | as many callers, with smaller batches for each server |
| HTTP | net/http and system calls |
| in memory | see the handlers written by hand |

## How it was measured

The sides take turns within one run, and every second round in reverse order.

Each comparison in Redis has its own servers, without persistence, reached over loopback. Every limiter has its own
client, with a pool of the default size. A ` + "`client of redisstore.Options`" + ` is made as in the README, by
` + "`redisstore.Options`" + ` or ` + "`ClusterOptions`" + `. A client ` + "`of defaults`" + ` has the settings of go-redis. Both sides of a row
have the same settings. A Ring has the values of ` + "`redisstore.Options`" + `, and rueidis is made as in its README. Buckets and
connections are made before the measurement.

Through the Limiter, each call has its own context that can be cancelled, as net/http gives to each request. A call of
` + "`Limiter.Handler`" + ` is a request that is served without a network. It is compared with a handler that calls redis_rate and
sets the same headers. Two policies of one key are compared with two calls of redis_rate, one after the other. With one
caller, the sides take turns every 500 calls. With many callers, every caller is a goroutine that calls again as soon as
it is answered. The store alone is called with one context for many calls, and with compiled charges. A call that fails
ends the run.

The CPU of Go is the processor time of the whole process, in its own code and in the system's (getrusage), divided by
the calls. It includes the callers, on all sides. The CPU of Redis is that of all server processes, from INFO.

Where all calls are allowed, buckets are so large and slow that none becomes empty or full. The others ask Redis for
each call. redisstore asks for many calls in one script. It refuses a call itself if the bucket cannot have refilled
since Redis refused one. rueidis and AutoPipeline share pipelines among callers. ulule/limiter counts in fixed windows,
which is less work than a bucket. throttled takes no part where all callers want one key: it reads, then compares and
swaps, and fails after ten attempts. lease.Store takes many tokens of a key in one call of redisstore and spends them
without Redis. In its row, the bucket refills faster than it is emptied.

The handlers written by hand are the floor of a middleware in memory. They find the address, charge one map of
buckets under one lock, and set the three headers. The second one also puts its decision into the context of the
request, which net/http copies for that.

Over HTTP, a separate server process answers 256 connections, each with the next request as soon as the last one is
answered.
`
