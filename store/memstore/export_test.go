package memstore

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

const (
	ShardSize = shardSize
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
	indexed := 0
	for _, n := range s.index {
		if n != 0 {
			indexed++
		}
	}
	deadlines := 0
	for _, g := range s.groups {
		count, keys := 0, 0
		for _, q := range g.queues {
			count += len(q.deadlines)
			for _, d := range q.deadlines {
				keys += sizeOf(s.entry(d.entry).key)
			}
			if q.group != g {
				return fmt.Sprintf("a queue of %s is that of %s", g.policy, q.group.policy)
			}
		}
		if count != g.count {
			return fmt.Sprintf("%d entries of %s, and %d deadlines", g.count, g.policy, count)
		}
		if keys != g.keys {
			return fmt.Sprintf("keys of %s take %d bytes, and %d are counted", g.policy, keys, g.keys)
		}
		deadlines += count
	}
	if indexed != s.count || deadlines != s.count {
		return fmt.Sprintf("%d entries, %d in the index, %d deadlines", s.count, indexed, deadlines)
	}
	asides, shuts := len(s.asides), len(s.shuts)
	for n := range uint32(s.count) {
		e := s.entry(n)
		if _, has := s.asides[e.name()]; has {
			asides--
		}
		if _, has := s.shuts[e.name()]; has {
			shuts--
		}
		q := e.class.queue
		d := q.deadlines[e.deadline]
		switch {
		case s.find(e.hash, e.class.policy, e.key) != e:
			return fmt.Sprintf("%s is not found", e.key)
		case q.group.policy != e.class.policy || q.shut() != e.class.shut || q.held() != e.class.held || !q.shut() && !q.held() && q.scale != bucket.Limit(e.class.limit).Scale():
			return fmt.Sprintf("%s is in the queue of others", e.key)
		case d.entry != n:
			return fmt.Sprintf("%s has the deadline of another", e.key)
		case d.at > s.at(e):
			return fmt.Sprintf("%s comes up at %d, before its deadline %d", e.key, s.at(e), d.at)
		case e.class.shut && s.shuts[e.name()].For == 0:
			return fmt.Sprintf("%s is among the blocked buckets, and is not blocked", e.key)
		case e.class.held && s.asides[e.name()].hold == 0:
			return fmt.Sprintf("%s is among the held buckets, and is not held", e.key)
		case e.deadline > 0 && q.deadlines[(e.deadline-1)/2].at > d.at:
			return fmt.Sprintf("%s has a deadline before that above it", e.key)
		}
	}
	if asides != 0 {
		return fmt.Sprintf("%d asides of buckets that are not kept", asides)
	}
	if shuts != 0 {
		return fmt.Sprintf("%d blocks of buckets that are not kept", shuts)
	}
	return ""
}

// Spent returns which part of each bucket has been spent by now, for each policy and key. It is just above 0 for a bucket
// that is full and held.
func (s *Store) Spent() map[[2]string]float64 {
	now, spent := s.now(), make(map[[2]string]float64)
	for i := range s.shards {
		s.shards[i].mu.Lock()
		for n := range uint32(s.shards[i].count) {
			e := s.shards[i].entry(n)
			part := float64(e.full()-now) / float64(e.class.fill)
			if part <= 0 && s.shards[i].asides[e.name()].hold > now {
				part = math.SmallestNonzeroFloat64
			}
			spent[[2]string{e.class.policy, e.key}] = part
		}
		s.shards[i].mu.Unlock()
	}
	return spent
}

// Asides returns how many buckets have an aside.
func (s *Store) Asides() (n int) {
	for i := range s.shards {
		n += len(s.shards[i].asides)
	}
	return n
}

// Queues returns how many queues there are.
func (s *Store) Queues() (n int) {
	for i := range s.shards {
		for _, g := range s.shards[i].groups {
			n += len(g.queues)
		}
	}
	return n
}
