package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// diagnoseTimeout bounds a Diagnose whose context has no deadline.
const diagnoseTimeout = 5 * time.Second

// Diagnose looks at the client and at each of its servers (all masters of a cluster, all shards of a ring), and
// returns what is wrong with them for a Store: for each finding a sentence that says also what would be right.
// Nil means that nothing is wrong. Call it when a program starts, and log what it returns; it is not for a
// health check that is called all the time.
//
// Of the client it looks at what makes an outage of Redis cost more than it must: see Options. Of a server, that
// it answers, is a master, permits the commands of the script, is Redis 5 or newer, does not evict buckets, has
// memory left, has a clock that is right, and decides fast enough. For some of that the client's user needs INFO.
// Where it has no right to it, as with the least rights that a Store needs, a sentence says so.
//
// It charges buckets of its own, which nobody else has and which expire after some seconds. It ends with ctx, or
// after 5 seconds if ctx has no deadline, and never panics. A server that has not answered everything by then is
// one that does not answer. The sentences name addresses of servers, but no user, password or URL.
func (s *Store) Diagnose(ctx context.Context) []string {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, diagnoseTimeout)
		defer cancel()
	}
	findings := clientFindings(s.engine.client)
	found, problem := attempt(ctx, func() inventory { return s.engine.inventory(ctx) })
	if problem != "" {
		return append(findings, problem)
	}
	findings = append(findings, found.findings...)

	ofServer := make([][]string, len(found.servers))
	var inspections sync.WaitGroup
	for i, server := range found.servers {
		inspections.Go(func() {
			of, problem := attempt(ctx, func() []string { return s.engine.inspect(ctx, server) })
			if problem != "" {
				of = []string{problem}
			}
			ofServer[i] = of
		})
	}
	inspections.Wait()
	return append(findings, merge(found.servers, ofServer)...)
}

// attempt returns what f returns, or why it does not: ctx ended, and f is left to itself, or f panicked, in a hook
// of the client.
func attempt[T any](ctx context.Context, f func() T) (value T, problem string) {
	type outcome struct {
		value   T
		problem string
	}
	done := make(chan outcome, 1)
	go func() {
		o := outcome{problem: "The client could not be checked, because one of its hooks ends the goroutine that it is called by."}
		defer func() {
			if p := recover(); p != nil {
				o.problem = fmt.Sprintf("The client could not be checked, because it or one of its hooks panics: %v.", p)
			}
			done <- o
		}()
		o.value = f()
		o.problem = ""
	}()
	select {
	case o := <-done:
		return o.value, o.problem
	case <-ctx.Done():
		return value, silent(ctx, ctx.Err())
	}
}

// merge returns the findings of all servers, each with the servers that it is of if there are several.
func merge(servers []server, findings [][]string) (merged []string) {
	if len(servers) == 1 {
		return findings[0]
	}
	names := make(map[string][]string)
	for i := range servers {
		for _, finding := range findings[i] {
			if names[finding] == nil {
				merged = append(merged, finding)
			}
			names[finding] = append(names[finding], servers[i].name)
		}
	}
	for i, finding := range merged {
		slices.Sort(names[finding])
		merged[i] = "At " + strings.Join(names[finding], ", ") + ": " + finding
	}
	return merged
}
