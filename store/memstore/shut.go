package memstore

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// setShut blocks the bucket of e, or ends its block if shut is zero. The class of e says whether it has one, so that
// calls of other buckets do not look for it.
func (s *shard) setShut(e *entry, shut bucket.Shut) {
	is := shut != bucket.Shut{}
	if is && s.shuts == nil {
		s.shuts = make(map[name]bucket.Shut)
	}
	if is == e.class.shut {
		if is {
			s.shuts[e.name()] = shut
			s.advanceDeadline(e)
		}
		return
	}
	of := s.class(kind{policy: e.class.policy, limit: e.class.limit, shut: is})
	n := e.class.queue.deadlines[e.deadline].entry
	s.removeDeadline(e)
	if is {
		s.shuts[e.name()] = shut
	} else {
		s.dropShut(e)
	}
	e.class = of
	s.addDeadline(n, e)
}

func (s *shard) dropShut(e *entry) {
	if !e.class.shut {
		return
	}
	delete(s.shuts, e.name())
	if len(s.shuts) == 0 {
		s.shuts = nil // a map does not shrink
	}
}

// endShuts puts buckets whose block has ended by now back among the others, at most so many of them. It returns how many
// more could have been.
func (s *shard) endShuts(now int64, most int) (rest int) {
	for ; most > 0 && len(s.shuts) > 0; most-- {
		e := s.ended(now)
		if e == nil {
			break
		}
		s.setShut(e, bucket.Shut{}) // which may change the groups and their queues
	}
	return most
}

// ended returns an entry whose block has ended by now, or nil.
func (s *shard) ended(now int64) *entry {
	for _, g := range s.groups {
		for _, q := range g.queues {
			for q.shut() && q.due(now) {
				if s.firstIsRight(q) {
					return s.entry(q.deadlines[0].entry)
				}
			}
		}
	}
	return nil
}

// block does to the block of the bucket what its charge does, which is in bucket already.
func (v *visit) block(c *store.Charge) {
	var shut bucket.Shut
	if v.shut {
		shut = v.shard.shuts[v.entry.name()]
	}
	shut = v.shutAfter(c, shut)
	v.left = shut.Left(v.now)
	if v.entry != nil {
		v.shard.setShut(v.entry, shut)
	} else {
		v.isNew = v.left > 0
	}
}

// shutAfter returns what the charge makes of a block.
func (v *visit) shutAfter(c *store.Charge, before bucket.Shut) bucket.Shut {
	return bucket.Limit(c.Limit).Shut(before, v.need, bucket.Block(c.Block), v.bucket.Tokens, v.now)
}

func duration(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}
