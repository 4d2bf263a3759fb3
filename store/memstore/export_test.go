package memstore

import "fmt"

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
	if indexed != s.count || len(s.deadlines) != s.count {
		return fmt.Sprintf("%d entries, %d in the index, %d deadlines", s.count, indexed, len(s.deadlines))
	}
	for n := range uint32(s.count) {
		e := s.entry(n)
		d := s.deadlines[e.deadline]
		switch {
		case s.find(e.hash, e.class.policy, e.key) != e:
			return fmt.Sprintf("%s is not found", e.key)
		case d.entry != n:
			return fmt.Sprintf("%s has the deadline of another", e.key)
		case d.at > e.full():
			return fmt.Sprintf("%s is full at %d, before its deadline %d", e.key, e.full(), d.at)
		case e.deadline > 0 && s.deadlines[(e.deadline-1)/2].at > d.at:
			return fmt.Sprintf("%s has a deadline before that above it", e.key)
		}
	}
	return ""
}
