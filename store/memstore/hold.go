package memstore

import "github.com/go-tokenbucket/ratelimit/internal/bucket"

// A bucket that is put under another limit is held until it would have been full under the old one. A held bucket that
// is full under its own limit is in a queue of its own, until its hold ends or it is charged.

// ofHeld is the scale of the queue of held buckets that are full. No limit has it.
const ofHeld bucket.Scale = 1

func (q *queue) held() bool { return q.scale == ofHeld }

// hold holds e, which is about to be put under another limit.
func (s *shard) hold(e *entry, now int64) {
	full := bucket.Limit(e.class.limit).Full(e.bucket())
	if full <= now && len(s.asides) == 0 {
		return
	}
	a := s.asides[e.name()]
	a.hold = max(a.hold, full)
	if a.hold <= now {
		a.hold = 0
	}
	s.setAside(e.name(), a)
}

// endHold drops the hold of e if it has ended.
func (s *shard) endHold(e *entry, now int64) {
	if len(s.asides) == 0 {
		return
	}
	if a := s.asides[e.name()]; a.hold != 0 && a.hold <= now {
		a.hold = 0
		s.setAside(e.name(), a)
	}
}

// keepHeld moves e, which is full, to the held buckets if it is held. The groups and queues may be others afterwards.
func (s *shard) keepHeld(e *entry, now int64) bool {
	if len(s.asides) == 0 || s.asides[e.name()].hold <= now {
		return false
	}
	n := e.class.queue.deadlines[e.deadline].entry
	of := s.class(kind{policy: e.class.policy, limit: e.class.limit, held: true})
	s.removeDeadline(e)
	e.class = of
	s.addDeadline(n, e)
	return true
}
