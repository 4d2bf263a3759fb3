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

What counts is the ratio, not a figure: the client and Redis share the cores. The targets are those that this project has
set for itself. A target that is missed, here or on your machine, is not a fault of an installation.

%s
%s
## What is compared

- **Limiter, Handler, Policies**: as a service calls, with a context for each call that can be cancelled. Handler serves
  requests without a network. It is compared with a handler that calls redis_rate and sets the same headers. redis_rate
  is called twice for two policies. **Store** is called with one context for many calls.
- Each comparison in Redis has its own servers, without persistence, on the same machine. Each side has its own client, made
  by ` + "`redisstore.Options`" + ` or ` + "`ClusterOptions`" + ` for all sides alike. Buckets are made before the measurement.
- Buckets are so large and slow that none becomes empty or full, except where all is refused. ulule/limiter counts in fixed
  windows, which is less work than a bucket. throttled takes no part with one key: it fails after ten conflicts.
- **Memory, Middleware, Fallback**: a caller on each core. The handlers written by hand are the floor of a middleware: they find
  the address, charge a map of buckets under one lock, and set three headers. One puts its decision into the context, too.
- **HTTP**: another process answers 256 connections.
- CPU of Go is the processor time of the process with its callers. CPU of Redis is that of all servers. Both are for each call.

## Repeat it

` + "```" + `
make bench                                                 # all, some 20 minutes: this page, its chart and its rows
cd bench && go run . -bench '^BenchmarkLimiter$/1,024'     # some rows, in rounds
cd bench && go test -bench '^BenchmarkMemory$' -benchmem   # one round, as any Go benchmark
` + "```" + `

The sides of a row take turns, in reverse order in every second round. [%[6]s](%[6]s) has the raw rows, for benchstat, or for
` + "`go run . -from`" + `, which prints this table.
`
