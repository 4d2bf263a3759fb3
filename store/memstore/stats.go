package memstore

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Stats implements [store.StatsReporter]. It locks one shard after another, for microseconds each. It looks at each
// blocked bucket. With a million of them it takes about 60 ms, and locks each shard for about 0.2 ms.
func (s *Store) Stats() store.Stats {
	m := &store.MemoryStats{Bytes: int64(unsafe.Sizeof(*s)), Evicted: s.evicted.read()}
	now := s.now()
	for i := range s.shards {
		s.shards[i].stats(m, now)
	}
	return store.Stats{Memory: m}
}

func (s *shard) stats(m *store.MemoryStats, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Buckets += s.count
	m.Max += s.max
	m.Bytes += s.bytes()
	for _, shut := range s.shuts {
		if shut.Left(now) > 0 {
			m.Blocked++
		}
	}
}

// What the parts of a shard take of memory.
const (
	shardSize    = int(unsafe.Sizeof(shard{}))
	chunkBytes   = int(unsafe.Sizeof([chunkSize]entry{}) + unsafe.Sizeof(&entry{}))
	slotSize     = int(unsafe.Sizeof(uint32(0)))
	deadlineSize = int(unsafe.Sizeof(deadline{}))
	groupSize    = int(unsafe.Sizeof(group{})+unsafe.Sizeof(&group{})) + 16 // and the name of the policy
	queueSize    = int(unsafe.Sizeof(queue{}) + unsafe.Sizeof(&queue{}))
	classSize    = int(unsafe.Sizeof(class{}))
	asideSize    = unsafe.Sizeof(name{}) + unsafe.Sizeof(aside{})
	shutSize     = unsafe.Sizeof(name{}) + unsafe.Sizeof(bucket.Shut{})
)

// bytes returns about how much memory s takes.
func (s *shard) bytes() int64 {
	n := shardSize + len(s.chunks)*chunkBytes + len(s.index)*slotSize
	n += len(s.classes)*classSize + mapBytes(len(s.classes), unsafe.Sizeof(kind{})+unsafe.Sizeof(&class{}))
	n += mapBytes(len(s.asides), asideSize) + mapBytes(len(s.shuts), shutSize)
	for _, g := range s.groups {
		n += groupSize + g.keys
		for _, q := range g.queues {
			n += queueSize + cap(q.deadlines)*deadlineSize
		}
	}
	return int64(n)
}

// mapBytes returns about how much memory a map of n entries takes that has not shrunk.
func mapBytes(n int, entry uintptr) int {
	const header = 48
	if n == 0 {
		return 0
	}
	slots := 8
	for n > 8 && slots*7/8 < n {
		slots *= 2
	}
	return header + slots*(int(entry)+1)
}

// sizeOf returns how many bytes a key takes. Memory comes in steps. Less than 16 bytes share 16 with others, which may be
// gone.
func sizeOf(key string) int {
	if n := len(key); n > 16 && n <= 32 {
		return (n + 7) &^ 7
	}
	return (len(key) + 15) &^ 15
}

// maxEvicted bounds how many policies are counted by name.
const maxEvicted = 64

// others counts the evictions of further policies.
const others = "_other"

// evictions count the buckets that were forgotten for lack of room, by policy.
type evictions struct {
	mu     sync.Mutex
	counts map[string]*atomic.Int64
}

// countEviction counts a bucket of g that is not full.
func (s *shard) countEviction(g *group) {
	if g.evicted == nil {
		g.evicted = s.evicted.of(g.policy)
	}
	g.evicted.Add(1)
}

// of returns the count of a policy.
func (e *evictions) of(policy string) *atomic.Int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = make(map[string]*atomic.Int64)
	}
	if e.counts[policy] == nil && len(e.counts) >= maxEvicted {
		policy = others
	}
	if e.counts[policy] == nil {
		e.counts[policy] = new(atomic.Int64)
	}
	return e.counts[policy]
}

func (e *evictions) read() map[string]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := make(map[string]int64, len(e.counts))
	for policy, n := range e.counts {
		counts[policy] = n.Load()
	}
	return counts
}
