package main

import (
	"context"
	"slices"
	"strings"
	"time"
)

// A comparison measures one thing for this limiter and for each competitor.
type comparison struct {
	section section
	name    string
	run     func(context.Context, plan) (findings, error)
}

// A section is a part of the report. Sections are in the order of interest to users.
type section int

const (
	asUsed     section = iota // Redis, through the Limiter
	nearby                    // without Redis, and HTTP
	storeAlone                // the Redis store without the Limiter
	sections
)

func (s section) String() string {
	return [...]string{
		"Redis, through the Limiter",
		"HTTP, memory and fallback",
		"The Redis store alone, for contributors",
	}[s]
}

// findings are the results of a comparison.
type findings struct {
	rows  []row
	loads []loadTable
}

// add appends the results of another comparison.
func (f *findings) add(other findings) {
	f.rows = append(f.rows, other.rows...)
	f.loads = append(f.loads, other.loads...)
}

// A plan says how much to measure.
type plan struct {
	rounds int
	time   time.Duration // of one side in one round
}

// comparisons are in the order of their file names. Each section of the report has them in this order, too.
var comparisons []comparison

// register adds a comparison. Call it from init.
func register(s section, name string, run func(context.Context, plan) (findings, error)) {
	comparisons = append(comparisons, comparison{s, name, run})
}

func names() string {
	var names []string
	for _, c := range comparisons {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// alternate calls each of measures once in a round. Every second round is in reverse order. So no measure always
// finds the caches and the heap as the same other measure left them.
func alternate(ctx context.Context, rounds int, measures ...func() error) error {
	turns := slices.Clone(measures)
	for range rounds {
		for _, measure := range turns {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := measure(); err != nil {
				return err
			}
		}
		slices.Reverse(turns)
	}
	return nil
}
