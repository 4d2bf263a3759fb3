package main

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// burn keeps a processor busy until the process has used that much CPU more.
func burn(d time.Duration) {
	for until := processCPU() + d; processCPU() < until; {
	}
}

func TestProcessUsageCountsTheCPUOfAllGoroutines(t *testing.T) {
	const work = 20 * time.Millisecond
	before := ownUsage()
	var working sync.WaitGroup
	working.Go(func() { burn(work) })
	working.Wait()
	var used processUsage
	used.addSince(before)
	if used.cpu < work || used.cpu > 50*work {
		t.Errorf("%v of CPU counted, of %v at least", used.cpu, work)
	}
}

func TestProcessUsageDoesNotCountTheTimeOfWaiting(t *testing.T) {
	const wait = 100 * time.Millisecond
	before := ownUsage()
	time.Sleep(wait)
	var used processUsage
	used.addSince(before)
	if used.cpu > wait/2 {
		t.Errorf("%v of CPU counted while waiting for %v", used.cpu, wait)
	}
}

func TestProcessUsageAddsUp(t *testing.T) {
	var used processUsage
	var kept []*[64]byte
	const turns, allocations = 3, 1000
	for range turns {
		before := ownUsage()
		for range allocations {
			kept = append(kept, new([64]byte))
		}
		used.addSince(before)
	}
	runtime.KeepAlive(kept)
	if used.mallocs < turns*allocations {
		t.Errorf("%d allocations counted, of %d at least", used.mallocs, turns*allocations)
	}
}
