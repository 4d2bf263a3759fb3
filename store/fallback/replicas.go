package fallback

import (
	"sync/atomic"
)

// replicas is the number by which limits are divided.
type replicas struct {
	current func() int // nil: the number never changes

	number atomic.Int64
	due    atomic.Int64 // when current is called again, in microseconds
}

// askEvery is the time between two calls of ReplicasFunc, in microseconds.
const askEvery = 100_000

// refresh calls ReplicasFunc if that is due.
func (r *replicas) refresh(now int64) {
	if r.current == nil {
		return
	}
	if due := r.due.Load(); now >= due && r.due.CompareAndSwap(due, now+askEvery) {
		r.number.Store(int64(max(1, r.current())))
	}
}
