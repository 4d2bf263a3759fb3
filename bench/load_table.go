package main

import (
	"fmt"
	"strings"
)

// A loadTable compares all sides under one load.
type loadTable struct {
	name, title string
	sides       []side
}

// loadTableHead is the head of a loadTable.
const loadTableHead = `| | decisions | p50 | p99 | CPU of Go for each | CPU of Redis for each | allocations for each |
|---|--:|--:|--:|--:|--:|--:|
`

func (t loadTable) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "### Redis, %s\n\n%s", t.title, loadTableHead)
	for _, s := range t.sides {
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s |\n", s.name,
			perSecond(s.rate.median()), duration(s.p50.median()), duration(s.p99.median()),
			duration(s.own.median()), duration(s.redis.median()), count(s.allocs.median()))
	}
	return text.String()
}
