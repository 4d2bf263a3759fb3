package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A subject is one side of a comparison that keeps all cores busy, as testing.B.RunParallel does.
type subject struct {
	name    string
	workers []worker // one for each goroutine
	allowed [2]float64

	spent spent // in the current round

	ns, allocs figure // for each operation
}

// A worker carries out n operations and returns how many of them were allowed.
type worker func(n int) int

// spent is the cost of operations.
type spent struct {
	operations, allowed int64
	time                time.Duration
	allocs              uint64
}

// newSubject returns a subject with workers that next creates. In each round, the allowed share of the operations
// must be from allowed[0] to allowed[1]. Otherwise the measurement is not the one that the row describes.
func newSubject(name string, allowed [2]float64, next func(id int) worker) *subject {
	s := &subject{name: name, allowed: allowed}
	for id := range runtime.GOMAXPROCS(0) {
		s.workers = append(s.workers, next(id))
	}
	return s
}

// heapOfService stands for the other memory of a service. With an almost empty heap, the garbage collector would run
// hundreds of times a second, and the row would mostly measure it.
const heapOfService = 64 << 20

// measureParallel measures subjects in short turns. So a short disturbance affects all subjects alike.
func measureParallel(ctx context.Context, p plan, subjects ...*subject) error {
	const turns = 10 // for each subject in a round; an even number, for alternate
	heap := make([]byte, heapOfService)
	defer runtime.KeepAlive(heap)
	var measures []func() error
	for _, s := range subjects {
		measures = append(measures, func() error { s.run(p.time / turns); return nil })
	}
	return alternate(ctx, p.rounds, func() error {
		if err := alternate(ctx, turns, measures...); err != nil {
			return err
		}
		for _, s := range subjects {
			if err := s.conclude(); err != nil {
				return err
			}
		}
		return nil
	})
}

// run lets all workers work for some time.
func (s *subject) run(d time.Duration) {
	const batch = 128 // operations between two looks at whether the time is up
	var (
		done                atomic.Bool
		operations, allowed atomic.Int64
		working             sync.WaitGroup
		before, after       runtime.MemStats
	)
	runtime.GC() // the garbage of the other subjects
	runtime.ReadMemStats(&before)
	timer := time.AfterFunc(d, func() { done.Store(true) })
	defer timer.Stop()
	start := time.Now()
	for _, work := range s.workers {
		working.Go(func() {
			n, ok := 0, 0
			for !done.Load() {
				ok += work(batch)
				n += batch
			}
			operations.Add(int64(n))
			allowed.Add(int64(ok))
		})
	}
	working.Wait()
	s.spent.time += time.Since(start)
	runtime.ReadMemStats(&after)
	s.spent.allocs += after.Mallocs - before.Mallocs
	s.spent.operations += operations.Load()
	s.spent.allowed += allowed.Load()
}

// conclude adds the results of the round to the figures.
func (s *subject) conclude() error {
	n := float64(s.spent.operations)
	if share := float64(s.spent.allowed) / n; share < s.allowed[0] || share > s.allowed[1] {
		return fmt.Errorf("%s: a share of %.3f was allowed: must be from %.3f to %.3f", s.name, share, s.allowed[0], s.allowed[1])
	}
	s.ns = append(s.ns, float64(s.spent.time)/n)
	s.allocs = append(s.allocs, float64(s.spent.allocs)/n)
	s.spent = spent{}
	return nil
}
