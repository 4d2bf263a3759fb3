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
		for again := rest > 0; again; {
			rest, again = s.forgetFull(now, rest)
		}
		count := s.count
		s.mu.Unlock()
		if rest > 0 {
			return count
		}
	}
}

// forgetFull forgets buckets that are full at now, at most so many of them. It returns how many more could have been, and
// whether it has to be called again, because a held bucket has moved.
func (s *shard) forgetFull(now int64, most int) (rest int, again bool) {
	for _, g := range s.groups {
		for _, q := range g.queues {
			for ; most > 0 && q.due(now); most-- {
				e := s.entry(q.deadlines[0].entry)
				switch {
				case !s.firstIsRight(q):
					s.endHold(e, now)
				case s.keepHeld(e, now):
					return most - 1, true
				default:
					s.remove(q.deadlines[0].entry)
				}
			}
		}
	}
	return most, false
}
