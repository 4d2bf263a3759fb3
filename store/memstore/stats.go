package memstore

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Stats implements [store.StatsReporter]. It locks one shard after another, for microseconds each.
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
	chunkBytes   = int(unsafe.Sizeof([chunkSize]entry{})) + int(unsafe.Sizeof(&entry{}))
	slotSize     = int(unsafe.Sizeof(uint32(0)))
	deadlineSize = int(unsafe.Sizeof(deadline{}))
	namedSize    = 100 // of an entry in a map of names: 56 bytes, and its part of what is free
	classSize    = 250 // with its part of the map, its queue and its group
)

// bytes returns about how much memory s takes.
func (s *shard) bytes() int64 {
	n := shardSize + len(s.chunks)*chunkBytes + len(s.index)*slotSize + len(s.classes)*classSize
	n += (len(s.spares) + len(s.shuts)) * namedSize
	for _, g := range s.groups {
		n += g.keys
		for _, q := range g.queues {
			n += cap(q.deadlines) * deadlineSize
		}
	}
	return int64(n)
}

// sizeOf returns how many bytes a key of its own takes. Memory comes in steps of 8 bytes, and from 32 on of 16.
func sizeOf(key string) int {
	if len(key) <= 32 {
		return (len(key) + 7) &^ 7
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
