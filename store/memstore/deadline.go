package memstore

import (
	"strings"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A group is the buckets of one policy in a shard.
type group struct {
	policy  string
	count   int
	keys    int // the bytes of their keys
	queues  []*queue
	evicted *atomic.Int64 // nil before the first
}

// A queue is the buckets of a group whose limits have one scale. They fill within about the same time. So the one
// that is full first is the one that has spent least. One queue more is of all blocked buckets of the group, and
// one of those that are held, see hold.go.
type queue struct {
	group *group
	scale bucket.Scale // or ofShut, or ofHeld

	// One for each bucket, as a heap.
	deadlines []deadline
}

// ofShut is the scale of the queue of blocked buckets. No limit has it.
const ofShut bucket.Scale = 0

func (q *queue) shut() bool { return q.scale == ofShut }

// A deadline says when an entry is full, at the earliest, or when the block of a blocked one or the hold of a full one ends.
// A charge can only make that later. So a charge leaves the deadline unchanged, and it is corrected when it comes up.
type deadline struct {
	at    int64
	entry uint32
}

// queue returns the queue for buckets of policy under a limit of that scale. Policies come from the program, and
// scales are few.
func (s *shard) queue(policy string, scale bucket.Scale) *queue {
	g := s.group(policy)
	for _, q := range g.queues {
		if q.scale == scale {
			return q
		}
	}
	q := &queue{group: g, scale: scale}
	g.queues = append(g.queues, q)
	return q
}

func (s *shard) group(policy string) *group {
	for _, g := range s.groups {
		if g.policy == policy {
			return g
		}
	}
	g := &group{policy: strings.Clone(policy)} // it may be a part of something large
	s.groups = append(s.groups, g)
	return g
}

// at returns the time for the deadline of e.
func (s *shard) at(e *entry) int64 {
	switch {
	case e.class.shut:
		return s.shuts[e.name()].Until
	case e.class.held:
		return s.asides[e.name()].hold
	}
	return e.full()
}

// due reports whether an entry of q may be full at now, or its block ended.
func (q *queue) due(now int64) bool { return len(q.deadlines) > 0 && q.deadlines[0].at <= now }

// firstIsRight reports whether q.deadlines[0] belongs to the entry that comes first. If not, it has corrected one
// deadline. Call it until it reports true.
func (s *shard) firstIsRight(q *queue) bool {
	first := &q.deadlines[0]
	at := s.at(s.entry(first.entry))
	if at <= first.at {
		return true
	}
	first.at = at
	s.down(q.deadlines, 0)
	return false
}

func (s *shard) addDeadline(n uint32, e *entry) {
	q := e.class.queue
	q.group.count++
	e.deadline = uint32(len(q.deadlines))
	q.deadlines = append(q.deadlines, deadline{at: s.at(e), entry: n})
	s.up(q.deadlines, e.deadline)
}

// advanceDeadline corrects the deadline of an entry that may come up earlier than it says.
func (s *shard) advanceDeadline(e *entry) {
	d := e.class.queue.deadlines
	if at := s.at(e); at < d[e.deadline].at {
		d[e.deadline].at = at
		s.up(d, e.deadline)
	}
}

func (s *shard) removeDeadline(e *entry) {
	q := e.class.queue
	q.group.count--
	d, i, last := q.deadlines, e.deadline, uint32(len(q.deadlines)-1)
	s.swap(d, i, last)
	d = d[:last]
	if i < last {
		s.up(d, i)
		s.down(d, i)
	}
	if cap(d) > chunkSize && len(d) < cap(d)/4 {
		d = append(make([]deadline, 0, 2*len(d)), d...)
	}
	q.deadlines = d
}

func (s *shard) up(d []deadline, i uint32) {
	for i > 0 {
		parent := (i - 1) / 2
		if d[parent].at <= d[i].at {
			return
		}
		s.swap(d, i, parent)
		i = parent
	}
}

func (s *shard) down(d []deadline, i uint32) {
	for {
		child := 2*i + 1
		if child >= uint32(len(d)) {
			return
		}
		if right := child + 1; right < uint32(len(d)) && d[right].at < d[child].at {
			child = right
		}
		if d[i].at <= d[child].at {
			return
		}
		s.swap(d, i, child)
		i = child
	}
}

func (s *shard) swap(d []deadline, i, j uint32) {
	d[i], d[j] = d[j], d[i]
	s.entry(d[i].entry).deadline = i
	s.entry(d[j].entry).deadline = j
}
