package main

import (
	"fmt"
	"strings"
)

// growths are the tables of what grows.
var growths = []struct{ benchmark, title, size, note string }{
	{"GrowthOfKeysInMemory", "Keys in memory", "keys", "Limiter.Take on memstore, a caller on each core, one context, one policy, keys of 15 bytes. The memory is that of the heap, with the key."},
	{"GrowthOfKeysInRedis", "Keys in Redis", "keys", "1,024 callers, one policy, one server for each line. MEMORY USAGE leaves out the tables in which Redis finds keys and TTLs. The last column is what FLUSHALL frees."},
	{"GrowthOfPolicies", "Policies of a request", "policies", "Limiter.TakeAll, 1,024 callers, 10,000 keys, one server. A decision is about all policies."},
	{"GrowthOfReplicas", "Replicas on one Redis", "replicas", "1,024 callers in all, 10,000 keys, one server. Each replica has its own Limiter, store and client, and an equal part of the callers. They share one process."},
	{"GrowthOfMasters", "Masters of a Cluster", "masters", "1,024 callers, 10,000 keys, a Cluster for each line. All masters share the cores. So the table shows what smaller batches cost, not what more cores win."},
}

var growthMetrics = []metric{
	{"p99-ns", "p99", duration},
	{"go-ns/op", "CPU of Go for each", duration},
	{"redis-ns/op", "CPU of Redis for each", duration},
	{"usage-B/key", "MEMORY USAGE of a key", inBytes},
	{"B/key", "memory for each key", inBytes},
}

// growth returns a table for each thing that grows.
func (r results) growth() string {
	var text strings.Builder
	for _, g := range growths {
		for sizes := range chunks(r.sides, func(m *measured) string { return m.benchmark }) {
			if sizes[0].benchmark == g.benchmark {
				fmt.Fprintf(&text, "\n## %s\n\n%s\n\n%s", g.title, g.note, growthTable(g.size, sizes))
			}
		}
	}
	return text.String()
}

func growthTable(of string, sizes []*measured) string {
	head, line := "| "+of+" | decisions |", "|--:|--:|"
	rows := make([]string, len(sizes))
	for i, size := range sizes {
		rows[i] = "| " + thousands(size.name) + " | " + perSecond(size.speed().median()) + " |"
	}
	for _, m := range growthMetrics {
		if sizes[0].metrics[m.unit] == nil {
			continue
		}
		head, line = head+" "+m.head+" |", line+"--:|"
		for i, size := range sizes {
			rows[i] += " " + m.text(size.metrics[m.unit].median()) + " |"
		}
	}
	return strings.Join(append([]string{head, line}, rows...), "\n") + "\n"
}

// growthPage returns docs/growth.md.
func (r results) growthPage(tables string) string {
	return "# Growth\n\nWritten by `make growth`. " + r.where() + `

In each table one thing grows. Compare the lines of a table, not figures of different tables or machines: the client and
Redis share the cores.

All calls go through the Limiter, and are allowed. Callers are goroutines of one process that call again as soon as they
are answered. In Redis, each call has its own context, and the client is made by
` + "`redisstore.Options` or `ClusterOptions`" + `. The CPU times are those of [benchmarks.md](benchmarks.md#what-is-compared).
` + tables
}
