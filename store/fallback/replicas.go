package fallback

import (
	"cmp"
	"sync"
	"sync/atomic"
)

// replicas is the number by which limits are divided.
type replicas struct {
	number func() int // nil: it never changes

	inForce atomic.Int64
	due     atomic.Int64 // when number is called again, in microseconds

	mu    sync.Mutex
	asked int64 // when number was called last; 0 if it never was
	since int64 // when number first returned less than is in force, since it last did not; 0 if it does not
	most  int64 // that it has returned from then on
}

const (
	// askEvery is the time between two calls of ReplicasFunc, in microseconds.
	askEvery = 100_000

	// fewerAfter is for how long ReplicasFunc must return a smaller number before it counts. Each change costs
	// tokens, and a number that changes all the time would cost all.
	fewerAfter = 5_000_000
)

func newReplicas(number int, changing func() int) *replicas {
	r := &replicas{number: changing}
	r.inForce.Store(int64(cmp.Or(number, 1)))
	return r
}

// refresh updates r by a clock of microseconds. The caller must hold no lock. Several callers may find r out of
// date at once: none of them continues with an old number.
func (r *replicas) refresh(clock func() int64) {
	if r.number == nil {
		return
	}
	now := clock()
	if now < r.due.Load() {
		return
	}
	n := int64(max(1, r.number()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due.Store(now + askEvery)
	known := r.asked != 0 && now-r.asked < fewerAfter
	r.asked = max(1, now)
	switch inForce := r.inForce.Load(); {
	case n >= inForce, !known:
		r.inForce.Store(n)
		r.since = 0
	case r.since == 0:
		r.since, r.most = max(1, now), n
	default:
		if r.most = max(r.most, n); now-r.since >= fewerAfter {
			r.inForce.Store(r.most)
			r.since = 0
		}
	}
}

// shares reports whether limits may be divided.
func (r *replicas) shares() bool { return r.number != nil || r.inForce.Load() > 1 }
