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

// Diagnose checks the client and all its servers: all masters of a cluster, all shards of a ring. It returns a
// sentence for each problem, which says what would be right, and nil if there is none. "Check the servers" in the
// package comment lists the checks. Call it when a program starts and log the result. It is not for frequent health
// checks.
//
// It charges buckets that only it uses, which expire after some seconds. It ends with ctx, or after 5 seconds
// without a deadline, and never panics. Sentences name addresses of servers, but no user, password or URL.
func (s *Store) Diagnose(ctx context.Context) []string {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, diagnoseTimeout)
		defer cancel()
	}
	findings := clientFindings(s.engine.client, s.engine.timely)
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

// attempt returns the result of f. If ctx ends first, or f panics in a hook of the client, it returns a sentence
// about that instead. f may then still be running.
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

// merge joins the findings of all servers. If there are several servers, each finding names those that it concerns.
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
