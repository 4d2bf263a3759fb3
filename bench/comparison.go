package main

import (
	"context"
	"slices"
	"strings"
	"time"
)

// A comparison measures one thing on our side and on that of each competitor.
type comparison struct {
	name string
	run  func(context.Context, plan) (findings, error)
}

// findings are what a comparison found out.
type findings struct {
	rows  []row
	loads []loadTable
}

// add appends what another comparison found out.
func (f *findings) add(other findings) {
	f.rows = append(f.rows, other.rows...)
	f.loads = append(f.loads, other.loads...)
}

// A plan says how much to measure.
type plan struct {
	rounds int
	time   time.Duration // of one side in one round
}

// comparisons are in the order of the table, which is that of the names of their files.
var comparisons []comparison

// register adds a comparison. Call it from init.
func register(name string, run func(context.Context, plan) (findings, error)) {
	comparisons = append(comparisons, comparison{name, run})
}

func names() string {
	var names []string
	for _, c := range comparisons {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// alternate calls each measure once a round. Every second round goes backwards, so that none of them always
// finds the caches and the heap as the same other one left them.
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
