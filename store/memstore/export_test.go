package memstore

import (
	"fmt"
	"time"
	"unsafe"
)

const (
	ShardSize = unsafe.Sizeof(shard{})
	EntrySize = unsafe.Sizeof(entry{})
)

// Len returns how many buckets are kept.
func (s *Store) Len() (n int) {
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].count
		s.shards[i].mu.Unlock()
	}
	return n
}

// Sweep forgets the buckets that are full, as the timer does.
func (s *Store) Sweep() { s.sweep() }

// Forget makes a Store a storetest.Forgetter, also one that was closed so that its timer forgets nothing.
func (s *Store) Forget(time.Duration) {
	if !s.closed.Load() {
		s.sweep()
		return
	}
	for i := range s.shards {
		s.shards[i].sweep(s.now())
	}
}

// Check returns what is wrong with the tables of the shards, "" if nothing is.
func (s *Store) Check() string {
	for i := range s.shards {
		if fault := s.shards[i].check(); fault != "" {
			return fault
		}
	}
	return ""
}

func (s *shard) check() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, blocked := 0, 0
	classes, policies := make(map[*class]int), make(map[*policy]int)
	for n := range uint32(s.count) {
		e := s.entry(n)
		hash := s.hash(e)
		keys += sizeOf(e.key)
		classes[e.class]++
		policies[e.class.of]++
		_, block := s.blocks[hash]
		if block {
			blocked++
		}
		switch {
		case s.index[hash] != n || s.find(hash, e.class.policy, e.key) != e:
			return fmt.Sprintf("%s is not found", e.key)
		case s.classes[e.class.kind] != e.class || s.policies[e.class.policy] != e.class.of:
			return fmt.Sprintf("%s is of a class or policy that is not found", e.key)
		case block != e.class.blocked:
			return fmt.Sprintf("%s is in the wrong class: it has a block: %t", e.key, block)
		case e.class.limit.Unit > 0 && e.fullAt < e.class.limit.FullAt(e.bucket()):
			return fmt.Sprintf("%s is kept until %d, before it is full", e.key, e.fullAt)
		}
	}
	for c, n := range classes {
		if c.count != n || c.of.name != c.policy {
			return fmt.Sprintf("%d of class %+v, and %d are counted", n, c.kind, c.count)
		}
	}
	for p, n := range policies {
		if p.count != n {
			return fmt.Sprintf("%d of policy %s, and %d are counted", n, p.name, p.count)
		}
	}
	if len(s.index) != s.count || len(s.classes) != len(classes) || len(s.policies) != len(policies) || len(s.blocks) != blocked || s.keys != keys {
		return fmt.Sprintf("%d entries, %d classes, %d policies, %d blocks, keys of %d bytes: in the tables are %d, %d, %d, %d, %d",
			s.count, len(classes), len(policies), blocked, keys, len(s.index), len(s.classes), len(s.policies), len(s.blocks), s.keys)
	}
	return ""
}

// full is the loss of a bucket that is full under all its limits.
const full = -1

// Losses returns what is lost if a bucket is forgotten now, for each policy and key. It is -1 for one that is full under
// all its limits, the part of its burst that one with a token has spent, and above 1 for others.
func (s *Store) Losses() map[[2]string]float64 {
	now, losses := s.now(), make(map[[2]string]float64)
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		for n := range uint32(shard.count) {
			e := shard.entry(n)
			loss := shard.loss(e, now)
			if shard.forgettable(e, now) {
				loss = full
			}
			losses[[2]string{e.class.policy, e.key}] = loss
		}
		shard.mu.Unlock()
	}
	return losses
}

// Classes returns how many classes there are.
func (s *Store) Classes() (n int) {
	for i := range s.shards {
		n += len(s.shards[i].classes)
	}
	return n
}

// KeptValues returns how many values of a set s keeps.
func KeptValues(s *Store, set string) int { return len(s.values.all[set].values) }
