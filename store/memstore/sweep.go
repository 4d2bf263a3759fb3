package memstore

import "time"

// sweepLater starts the timer that forgets full buckets, unless it runs. An idle store has no goroutine, and an
// empty one has no timer.
func (s *Store) sweepLater() {
	if !s.sweeping.Load() && s.sweeping.CompareAndSwap(false, true) && !s.closed.Load() {
		s.sweeper.Reset(sweepEvery)
	}
}

// sweep forgets the buckets that are full by now. It looks at all buckets, at about 10 ns each. So it comes less often if
// there are many, to take at most a percent of a core.
func (s *Store) sweep() {
	if s.closed.Load() {
		return
	}
	s.sweeping.Store(false) // first, because a call may come during the sweep
	now := s.now()
	kept := 0
	for i := range s.shards {
		kept += s.shards[i].sweep(now)
	}
	if kept > 0 && !s.closed.Load() {
		s.sweeping.Store(true)
		s.sweeper.Reset(max(sweepEvery, time.Duration(kept)*time.Microsecond))
	}
}

// atOnce is how many entries are swept while a shard is locked, so that a call never waits long for it.
const atOnce = 256

// sweep forgets the buckets that may be at now and returns how many are left. It goes from the last entry to the first:
// what moves into the place of one that is forgotten was looked at.
func (s *shard) sweep(now int64) int {
	for n := -1; ; {
		s.mu.Lock()
		if n < 0 || n > s.count {
			n = s.count
		}
		for end := n - atOnce; n > 0 && n > end; {
			n--
			if e := s.entry(uint32(n)); s.forgettable(e, now) {
				s.remove(uint32(n))
			} else if e.class.blocked && s.blockLeft(e, now) == 0 {
				s.setBlock(s.hash(e), e, keptBlock{})
			}
		}
		count := s.count
		s.mu.Unlock()
		if n == 0 {
			return count
		}
	}
}

// forgettable reports whether nothing is lost when e is forgotten.
func (s *shard) forgettable(e *entry, now int64) bool {
	return e.fullAt <= now && s.blockLeft(e, now) == 0
}

// blockLeft returns how many microseconds e is still blocked.
func (s *shard) blockLeft(e *entry, now int64) int64 {
	if !e.class.blocked {
		return 0
	}
	return s.blocks[s.hash(e)].Left(now)
}
