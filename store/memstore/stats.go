package memstore

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Stats implements [store.StatsReporter]. It locks one shard after another, for microseconds each. It looks at each
// blocked bucket, and at each bucket of a shard that has buckets of slots. With a million of them it takes about 60 ms, and locks each shard for about 0.2 ms.
func (s *Store) Stats() store.Stats {
	stats := store.Stats{Memory: &store.MemoryStats{Bytes: int64(unsafe.Sizeof(*s)), Evicted: s.counts.evicted.read()}}
	if s.counts.taken.Load() {
		stats.Slots = &store.SlotStats{Held: make(map[string]int64), Lost: s.counts.lost.read()}
	}
	now := s.now()
	for i := range s.shards {
		s.shards[i].stats(&stats, now)
	}
	return stats
}

func (s *shard) stats(stats *store.Stats, now int64) {
	m := stats.Memory
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Buckets += s.count
	m.Max += s.max
	m.Bytes += s.bytes()
	for _, b := range s.blocks {
		if b.Left(now) > 0 {
			m.Blocked++
		}
	}
	if stats.Slots == nil || !s.hasSlots() {
		return
	}
	for n := range uint32(s.count) {
		if e := s.entry(n); e.held() > 0 {
			stats.Slots.Held[e.class.policy] += e.held()
		}
	}
}

// hasSlots reports whether the limit of a bucket is one of slots.
func (s *shard) hasSlots() bool {
	for k := range s.classes {
		if k.limit.IsConcurrency() {
			return true
		}
	}
	return false
}

// bytes returns about how much memory s takes.
func (s *shard) bytes() int64 {
	const chunk = unsafe.Sizeof([chunkSize]entry{}) + unsafe.Sizeof(&entry{})
	n := int(unsafe.Sizeof(*s)) + len(s.chunks)*int(chunk) + s.keys
	n += mapBytes(s.peak, unsafe.Sizeof(uint64(0))+unsafe.Sizeof(uint64(0))) // with 4 bytes between its slots
	n += mapBytes(len(s.blocks), unsafe.Sizeof(uint64(0))+unsafe.Sizeof(keptBlock{}))
	n += len(s.classes)*int(unsafe.Sizeof(class{})) + mapBytes(len(s.classes), unsafe.Sizeof(kind{})+unsafe.Sizeof(&class{}))
	n += len(s.policies)*(int(unsafe.Sizeof(policy{}))+16) + mapBytes(len(s.policies), unsafe.Sizeof("")+unsafe.Sizeof(&policy{}))
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

// counts are what a Store has counted since it was made.
type counts struct {
	evicted policyCounts // buckets that were forgotten for lack of room
	lost    policyCounts // slots that were released after they were lost
	taken   atomic.Bool  // a slot was taken
}

// slots counts a charge for slots that was carried out.
func (n *counts) slots(c *store.Charge, s *store.State) {
	if s.Lost {
		n.lost.add(strings.Clone(c.Policy)) // it may be a part of something large
	}
	if c.Cost > 0 && !n.taken.Load() {
		n.taken.Store(true)
	}
}

// maxPolicies bounds how many policies are counted by name.
const maxPolicies = 64

// others counts what is of further policies.
const others = "_other"

// policyCounts are counts by policy.
type policyCounts struct {
	mu     sync.Mutex
	counts map[string]int64
}

func (n *policyCounts) add(policy string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts == nil {
		n.counts = make(map[string]int64)
	}
	if _, counted := n.counts[policy]; !counted && len(n.counts) >= maxPolicies {
		policy = others
	}
	n.counts[policy]++
}

func (n *policyCounts) read() map[string]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	counts := make(map[string]int64, len(n.counts))
	maps.Copy(counts, n.counts)
	return counts
}
