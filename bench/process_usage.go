package main

import (
	"runtime"
	"time"
)

// A processUsage is what this process has used since its start, or during some work.
type processUsage struct {
	cpu     time.Duration
	mallocs uint64
}

// ownUsage returns what this process has used since its start. It stops all goroutines for a moment.
func ownUsage() processUsage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return processUsage{processCPU(), m.Mallocs}
}

// addSince adds what this process has used since before.
func (u *processUsage) addSince(before processUsage) {
	now := ownUsage()
	u.cpu += now.cpu - before.cpu
	u.mallocs += now.mallocs - before.mallocs
}
