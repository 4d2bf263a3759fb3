package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A results is what the raw rows say.
type results struct {
	conditions map[string]string // "key: value"
	sides      []*measured       // in the order of the benchmarks
}

// A measured is a side of a comparison.
type measured struct {
	benchmark, workload, name string
	metrics                   map[string]figure // by unit
}

// A figure has a value for each round.
type figure []float64

func (f figure) median() float64 {
	sorted := slices.Sorted(slices.Values(f))
	return sorted[(len(sorted)-1)/2]
}

// speed returns the decisions per second of each round.
func (m *measured) speed() figure {
	var perSecond figure
	for _, ns := range m.metrics["ns/op"] {
		perSecond = append(perSecond, 1e9/ns)
	}
	return perSecond
}

// conditions are rows that say what the others are measured with. Those of go test have the processor.
func (o options) conditions(ctx context.Context) string {
	server := cmp.Or(os.Getenv("RATELIMIT_REDIS_SERVER"), "redis-server")
	version := "none"
	if out, err := exec.CommandContext(ctx, server, "--version").Output(); err == nil {
		version = server
		if match := regexp.MustCompile(`v=(\S+)`).FindSubmatch(out); match != nil {
			version = "Redis " + string(match[1])
		}
	}
	return fmt.Sprintf("date: %s\ngo: %s\ncores: %d\nredis: %s\nrounds: %d\ntime: %v\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOMAXPROCS(0), version, o.rounds, o.time)
}

var (
	conditionRow = regexp.MustCompile(`^([a-z]+): (.*)$`)
	resultRow    = regexp.MustCompile(`^Benchmark([^/\s]+)/(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
)

// parse reads raw rows, which are in the format of go test -bench.
func parse(raw string) (results, error) {
	r := results{conditions: make(map[string]string)}
	at := make(map[[3]string]*measured)
	for line := range strings.Lines(raw) {
		line = strings.TrimSpace(line)
		if condition := conditionRow.FindStringSubmatch(line); condition != nil {
			r.conditions[condition[1]] = condition[2]
		}
		row := resultRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		workload, name, ofWorkload := strings.Cut(words(row[2]), "/")
		if !ofWorkload {
			workload, name = "", workload
		}
		key := [3]string{row[1], workload, name}
		m := at[key]
		if m == nil {
			m = &measured{row[1], workload, name, make(map[string]figure)}
			at[key], r.sides = m, append(r.sides, m)
		}
		fields := strings.Fields(row[3])
		if len(fields)%2 != 0 {
			return r, fmt.Errorf("row %q: must have values with units", line)
		}
		for i := 0; i < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return r, fmt.Errorf("row %q: %w", line, err)
			}
			m.metrics[fields[i+1]] = append(m.metrics[fields[i+1]], value)
		}
	}
	slices.SortStableFunc(r.sides, func(a, b *measured) int {
		return slices.Index(order, a.benchmark) - slices.Index(order, b.benchmark)
	})
	return r, nil
}

// order is the order of the table: the benchmarks that interest most users come first. go test uses the names of files.
var order = []string{"Limiter", "Policies", "Handler", "HTTP", "Memory", "MemoryOfKeys", "Middleware", "Fallback", "Store"}

// words returns a name as it was before go test put an underscore for each space.
func words(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "_", " "), "redis rate", "redis_rate")
}

// where describes the machine and the rounds.
func (r results) where() string {
	c := r.conditions
	return strings.TrimSpace(fmt.Sprintf("Measured on %s: %s, %s cores, %s, %s. Medians of %s rounds of %s for each side. %s",
		c["date"], c["cpu"], c["cores"], c["go"], c["redis"], c["rounds"], c["time"], c["note"]))
}
