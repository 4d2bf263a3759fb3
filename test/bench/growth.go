package main

import (
	"fmt"
	"strings"
)

// growths are the tables of what grows.
var growths = []struct{ benchmark, title, size, note string }{
	{"GrowthOfKeysInMemory", "Keys in memory", "keys", "Limiter.Take on memstore, a caller on each core with one context for many calls, one policy, keys of 15 bytes. The heap for each key has the key in it."},
	{"GrowthOfKeysInRedis", "Keys in Redis", "keys", "1,024 callers, one policy, one server for each line. MEMORY USAGE leaves out the tables that Redis finds keys and their TTLs in. The last column has all that is gone after FLUSHALL."},
	{"GrowthOfPolicies", "Policies of a request", "policies", "Limiter.TakeAll, 1,024 callers, 10,000 keys, one server. A decision is about all policies."},
	{"GrowthOfReplicas", "Replicas on one Redis", "replicas", "1,024 callers in all, 10,000 keys, one server. Each replica has a Limiter, a store and a client of its own, and an equal part of the callers. They share one process, and so its scheduler and garbage collector."},
	{"GrowthOfMasters", "Masters of a Cluster", "masters", "1,024 callers, 10,000 keys, a Cluster for each line. All masters share the cores: more of them show what is lost by smaller batches, not what is won by more cores."},
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

In each table one thing grows. The client and Redis share the cores. Compare the lines of a table, not figures of different
tables or machines.

All calls go through the Limiter. In Redis, each call has its own context, and the client is made by
` + "`redisstore.Options` or `ClusterOptions`" + `. Callers are goroutines in one process that call again as soon as they are
answered. All calls are allowed. CPU of Go is the processor time of the process, with the callers. CPU of Redis is that of
all servers. Both are for each call.
` + tables
}
