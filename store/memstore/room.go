package memstore

// makeRoom forgets a bucket for a new one of group g, if full finds none. A client that makes up keys can fill a shard with
// buckets of one policy. So each policy has an equal share of the shard, and a policy that has its share makes room among
// its own buckets.
func (s *shard) makeRoom(g *group, now int64) {
	if g.count == 0 || g.count*s.present() < s.max {
		g = s.largest()
	}
	s.countEviction(g)
	s.remove(s.leastSpent(g, now))
}

// full returns an entry that is full and not held, if it finds one. Nothing is lost when it is forgotten. The groups and
// queues may be others afterwards.
func (s *shard) full(now int64) (n uint32, found bool) {
	for _, g := range s.groups {
		for _, q := range g.queues {
			for !q.shut() && q.due(now) {
				if !s.firstIsRight(q) {
					continue
				}
				n = q.deadlines[0].entry
				if s.keepHeld(s.entry(n), now) {
					return s.full(now)
				}
				return n, true
			}
		}
	}
	return 0, false
}

// present returns how many policies have buckets.
func (s *shard) present() (n int) {
	for _, g := range s.groups {
		if g.count > 0 {
			n++
		}
	}
	return n
}

func (s *shard) largest() *group {
	largest := s.groups[0]
	for _, g := range s.groups {
		if g.count > largest.count {
			largest = g
		}
	}
	return largest
}

// leastSpent returns the entry of g that has spent the smallest part of its tokens. Held ones that are full come first, by
// the end of their holds. If all are blocked, it is the one whose block ends first.
func (s *shard) leastSpent(g *group, now int64) (n uint32) {
	least, found := 0.0, false
	for _, q := range g.queues {
		if len(q.deadlines) == 0 || q.shut() && q.group.count > len(q.deadlines) {
			continue
		}
		for !s.firstIsRight(q) {
		}
		first := q.deadlines[0]
		if q.held() {
			return first.entry
		}
		spent := float64(first.at-now) / float64(s.entry(first.entry).class.fill)
		if !found || spent < least {
			n, least, found = first.entry, spent, true
		}
	}
	return n
}
