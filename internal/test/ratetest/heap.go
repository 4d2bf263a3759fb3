package ratetest

import (
	"runtime"
	"slices"
)

// HeapOf returns the bytes by which the heap grows for what build returns: the median of three times. During one of
// them, what an earlier test has left behind may be freed, such as by the end of a timer.
func HeapOf(build func() any) int64 {
	var grown []int64
	for range 3 {
		before := Heap()
		built := build()
		grown = append(grown, Heap()-before)
		runtime.KeepAlive(built)
	}
	slices.Sort(grown)
	return grown[len(grown)/2]
}

// Heap returns how many bytes are on the heap after a collection.
func Heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first only marked, and what pools held
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
