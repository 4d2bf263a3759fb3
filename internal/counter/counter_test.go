package counter

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestEveryAddCounts(t *testing.T) {
	const goroutines, each = 64, 1000
	var c Counter
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for range each {
				c.Add(2)
			}
		})
	}
	for last := int64(0); last < 2*goroutines*each; {
		n := c.Load()
		if n < last {
			t.Fatalf("%d after %d", n, last)
		}
		last = n
	}
	running.Wait()
	if n := c.Load(); n != 2*goroutines*each {
		t.Errorf("%d, want %d", n, 2*goroutines*each)
	}
}

// Otherwise the cores would wait for each other.
func TestGoroutinesUseManyCells(t *testing.T) {
	const goroutines = 256
	var c Counter
	var running sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(goroutines)
	for range goroutines {
		running.Go(func() {
			ready.Done()
			ready.Wait() // so that no two have the same stack
			c.Add(1)
		})
	}
	running.Wait()
	used := 0
	for i := range c.cells {
		if n := c.cells[i].n.Load(); n > 0 {
			used++
		}
		if n := c.cells[i].n.Load(); n > goroutines/4 {
			t.Errorf("%d of %d goroutines use one cell", n, goroutines)
		}
	}
	if used < 1<<cellBits/2 {
		t.Errorf("%d goroutines use %d cells of %d", goroutines, used, 1<<cellBits)
	}
}

func BenchmarkAdd(b *testing.B) {
	b.Run("Counter", func(b *testing.B) {
		var c Counter
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.Add(1)
			}
		})
	})
	b.Run("atomic", func(b *testing.B) {
		var n atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				n.Add(1)
			}
		})
	})
}
