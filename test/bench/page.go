package main

import "fmt"

// page returns docs/benchmarks.md.
func (r results) page(table, raw, chart string) string {
	return fmt.Sprintf(pageFormat, r.where(), chartTitle, chart, table, r.memory(), raw)
}

// memory returns a sentence about the memory of keys.
func (r results) memory() (text string) {
	for _, m := range r.sides {
		if of := m.metrics["B/key"]; of != nil && m.benchmark == "MemoryOfKeys" {
			text += fmt.Sprintf("The heap for each of a million keys of 15 bytes in %s: %s.\n", m.name, inBytes(of.median()))
		}
	}
	return text
}

const pageFormat = `# Benchmarks

Written by ` + "`make bench`" + `. %s

![%s](%s)

Compare ratios, not figures: the client and Redis share the cores. The targets are this project's own. A target that is
missed, here or on your machine, is not a fault of an installation.

%s
%s
## What is compared

- **Limiter, Handler, Policies**: each call has its own context, as in a service. Handler serves requests without a
  network, beside a handler that calls redis_rate and sets the same headers. redis_rate is called twice for two policies.
- **Store**: all calls have one context.
- **Memory, Middleware, Fallback**: there is a caller on each core. The handlers written by hand are the floor of a
  middleware: they find the address, charge a map of buckets under one lock, and set three headers.
- **HTTP**: another process answers 256 connections.
- Each comparison in Redis has its own servers on the same machine, without persistence. Each side has its own client, made
  by ` + "`redisstore.Options`" + ` or ` + "`ClusterOptions`" + `. Buckets exist before the measurement.
- No bucket becomes empty or full, except where all is refused. For ulule/limiter, a bucket is the counter of a fixed
  window, which is less work. With one key, throttled takes no part, because it fails after ten conflicts.
- CPU of Go is the time of the process with its callers, CPU of Redis that of all servers, both for each call.

## Repeat it

` + "```" + `
make bench                                                      # all, some 20 minutes: this page, its chart and its rows
cd test/bench && go run . -bench '^BenchmarkLimiter$/1,024'     # some rows, in rounds
cd test/bench && go test -bench '^BenchmarkMemory$' -benchmem   # one round, as any Go benchmark
` + "```" + `

The sides of a row take turns, in reverse order in every second round. [%[6]s](%[6]s) has the raw rows, for benchstat or
` + "`go run . -from`" + `.
`
