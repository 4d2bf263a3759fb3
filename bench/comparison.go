package main

import (
	"context"
	"slices"
	"strings"
	"time"
)

// A comparison measures one thing on our side and on that of each competitor.
type comparison struct {
	section section
	name    string
	run     func(context.Context, plan) (findings, error)
}

// A section is a part of the report. They are in the order of what users want to know.
type section int

const (
	asUsed     section = iota // Redis, through the Limiter
	nearby                    // what goes without Redis, and HTTP
	storeAlone                // the store of Redis by itself
	sections
)

func (s section) String() string {
	return [...]string{
		"Redis, through the Limiter",
		"HTTP, memory and fallback",
		"The Redis store alone, for contributors",
	}[s]
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

// comparisons are in the order of the names of their files, and so they are in each section of the report.
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
