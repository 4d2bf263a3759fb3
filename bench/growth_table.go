package main

import (
	"fmt"
	"strings"
)

// A growthTable is the measurements of decisions at several sizes.
type growthTable struct {
	title   string
	note    string // the measurement in a sentence or two
	columns []column
	rows    []growthRow
}

// A growthRow is one size.
type growthRow struct {
	size  int
	extra []float64 // for columns that a side does not have
	side
}

// A column describes a printed column: its head and its value in a row.
type column struct {
	head string
	cell func(growthRow) string
}

func sizeColumn(of string) column {
	return column{of, func(r growthRow) string { return thousands(r.size) }}
}

// extraColumn prints the ith extra value.
func extraColumn(head string, i int, unit func(float64) string) column {
	return column{head, func(r growthRow) string { return unit(r.extra[i]) }}
}

var (
	decisionsColumn = column{"decisions", func(r growthRow) string { return perSecond(r.rate.median()) }}
	p99Column       = column{"p99", func(r growthRow) string { return duration(r.p99.median()) }}
	ownColumn       = column{"CPU of Go for each", func(r growthRow) string { return duration(r.own.median()) }}
	redisColumn     = column{"CPU of Redis for each", func(r growthRow) string { return duration(r.redis.median()) }}
)

// redisColumns are the first columns of every table about Redis.
func redisColumns(of string) []column {
	return []column{sizeColumn(of), decisionsColumn, p99Column, ownColumn, redisColumn}
}

func (t growthTable) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "## %s\n\n%s\n\n", t.title, t.note)
	for _, c := range t.columns {
		fmt.Fprintf(&text, "| %s ", c.head)
	}
	text.WriteString("|\n")
	for range t.columns {
		text.WriteString("|--:")
	}
	text.WriteString("|\n")
	for _, r := range t.rows {
		for _, c := range t.columns {
			fmt.Fprintf(&text, "| %s ", c.cell(r))
		}
		text.WriteString("|\n")
	}
	return text.String()
}
