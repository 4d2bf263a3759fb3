package ratelimit

import (
	"hash/maphash"
	"sync"

	"github.com/go-tokenbucket/ratelimit/store"
)

// waitPlaces are places to wait in. A request takes one only while its queue holds fewer places than are free. One queue gets
// at most half of the places, two queues get a third each. So a client that fills its queue leaves places for others.
// Under several policies the shortest of the request's queues counts. A queue that all clients share may be full of
// requests that wait for another policy.
type waitPlaces struct {
	seed maphash.Seed
	all  int

	mu   sync.Mutex
	free int
	held map[uint64]int // by queue; without queues that hold none, so that it is bounded
}

// A waitQueue is the requests that wait for tokens of one bucket.
type waitQueue struct{ policy, key string }

// newWaitPlaces returns n places.
func newWaitPlaces(n int) *waitPlaces {
	return &waitPlaces{seed: maphash.MakeSeed(), all: n, free: n, held: make(map[uint64]int)}
}

// queues appends to room the hashes of the queues that a request with charges may have to wait in. The seed prevents
// clients from choosing keys that collide.
func (s *waitPlaces) queues(room []uint64, charges []store.Charge) []uint64 {
	for i := range charges {
		if c := &charges[i]; c.MaxWait > 0 && !c.Shadow && !c.Owed {
			room = append(room, maphash.Comparable(s.seed, waitQueue{c.Policy, c.Key}))
		}
	}
	return room
}

// take takes a place for a request that waits in all of queues, if one of them may hold one more.
func (s *waitPlaces) take(queues []uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	fewest := 0
	for i, q := range queues {
		if n := s.held[q]; i == 0 || n < fewest {
			fewest = n
		}
	}
	if fewest >= s.free {
		return false
	}
	s.free--
	for _, q := range queues {
		s.held[q]++
	}
	return true
}

// taken returns how many places are taken, and how many there are.
func (s *waitPlaces) taken() (taken, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all - s.free, s.all
}

// put gives back the place that take took for queues.
func (s *waitPlaces) put(queues []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	for _, q := range queues {
		if s.held[q]--; s.held[q] == 0 {
			delete(s.held, q)
		}
	}
}
