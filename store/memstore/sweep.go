package memstore

// sweepLater starts the timer that forgets full buckets, unless it runs. An idle store has no goroutine, and an
// empty one has no timer.
func (s *Store) sweepLater() {
	if !s.sweeping.Load() && s.sweeping.CompareAndSwap(false, true) && !s.closed.Load() {
		s.sweeper.Reset(sweepEvery)
	}
}

// sweep forgets the buckets that are full by now.
func (s *Store) sweep() {
	if s.closed.Load() {
		return
	}
	s.sweeping.Store(false)
	now := s.now()
	kept := 0
	for i := range s.shards {
		kept += s.shards[i].sweep(now)
	}
	if kept > 0 {
		s.sweepLater()
	}
}

// atOnce is how many buckets are forgotten, or unblocked, while a shard is locked, so that a call never waits long for it.
const atOnce = 256

// sweep forgets the buckets that are full at now and returns how many are left.
func (s *shard) sweep(now int64) int {
	for {
		s.mu.Lock()
		rest := s.endShuts(now, atOnce)
		for _, g := range s.groups {
			for _, q := range g.queues {
				for ; rest > 0 && q.due(now); rest-- {
					if s.firstIsRight(q) {
						s.remove(q.deadlines[0].entry)
					}
				}
			}
		}
		count := s.count
		s.mu.Unlock()
		if rest > 0 {
			return count
		}
	}
}
