package main

import (
	"fmt"
	"strings"
)

// A loadTable is how all sides stand a load, side by side.
type loadTable struct {
	name, title string
	crowds      []*crowd
}

// loadTableHead tells what the cells of a loadTable are.
const loadTableHead = `| | decisions | p50 | p99 | CPU of Redis for each | allocations for each |
|---|--:|--:|--:|--:|--:|
`

func (t loadTable) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "### Redis, %s\n\n%s", t.title, loadTableHead)
	for _, c := range t.crowds {
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s |\n", c.name,
			perSecond(c.rate.median()), duration(c.p50.median()), duration(c.p99.median()), duration(c.cpu.median()), count(c.allocs.median()))
	}
	return text.String()
}
