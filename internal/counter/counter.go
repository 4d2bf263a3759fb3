// Package counter has a counter for events that happen on all cores at once.
package counter

import (
	"sync/atomic"
	"unsafe"
)

// A Counter counts in several cells, so that cores do not wait for each other. The zero value is ready to use. Do not
// copy it.
type Counter struct{ cells [1 << cellBits]cell }

const (
	cellBits  = 5
	cacheLine = 128 // two, because cores fetch them in pairs
)

type cell struct {
	n atomic.Int64
	_ [cacheLine - 8]byte
}

// Add adds n.
func (c *Counter) Add(n int64) { c.cells[Stripe(cellBits)].n.Add(n) }

// Stripe returns a number below 1<<bits, mostly another one for goroutines that run at the same time. It is for those who
// keep several counts in one cell.
func Stripe(bits int) int {
	// Each goroutine has its own stack, and stays on its core for a while. So the address of the stack chooses the
	// cell. The address is not kept.
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // which is the size of the smallest
	return int(stack * 0x9e3779b97f4a7c15 >> (64 - bits))
}

// Load returns the sum. It may miss what is added meanwhile.
func (c *Counter) Load() (sum int64) {
	for i := range c.cells {
		sum += c.cells[i].n.Load()
	}
	return sum
}
