package memstore

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
