package memstore

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A shard is a hash table of buckets with its own lock. It is not a Go map, because a map of a million keys takes
// more memory, and because the bucket that has spent least must be found fast.
//
// Entries lie in chunks without gaps. The index finds an entry by its hash (open addressing, linear probing). The
// queues of its policy find it by when it is full.
type shard struct {
	mu    sync.Mutex
	count int
	// A slot holds the number of an entry, plus one, in the bits below the length. The bits above are those of its
	// hash. If they differ, the entry need not be compared. 0 is free.
	index  []uint32
	chunks []*[chunkSize]entry

	max     int
	groups  []*group
	classes map[kind]*class
	asides  map[name]aside
	shuts   map[name]bucket.Shut
	evicted *evictions
	// So far two cache lines, of which most calls need the first.
}

const chunkSize = 64

// An entry is one bucket.
type entry struct {
	class      *class
	key        string
	tokens     int64 // in credits of class.limit
	lastRefill int64
	hash       uint32
	deadline   uint32 // number of its deadline in the queue of its class
}

// A class is what entries of one kind share.
type class struct {
	kind
	fill  int64 // microseconds from empty to full
	queue *queue
}

// A kind is the policy, the limit that an entry was last charged under, and whether it has a block, or is full and held.
type kind struct {
	policy string
	limit  store.Limit
	shut   bool
	held   bool
}

// maxClasses bounds the classes that are kept for new entries. Above it they are made again, and entries keep
// theirs.
const maxClasses = 256

func (e *entry) bucket() bucket.Bucket {
	return bucket.Bucket{Tokens: e.tokens, Unit: e.class.limit.Unit, LastRefill: e.lastRefill}
}

// full returns when e is full if it is not charged again.
func (e *entry) full() int64 {
	return e.lastRefill + bucket.Limit(e.class.limit).ResetAfter(e.tokens)
}

func (e *entry) name() name { return name{e.class.policy, e.key} }

func (s *shard) entry(n uint32) *entry { return &s.chunks[n/chunkSize][n%chunkSize] }

func (s *shard) find(hash uint32, policy, key string) *entry {
	if s.count == 0 {
		return nil
	}
	mask := uint32(len(s.index) - 1)
	for slot := hash & mask; ; slot = (slot + 1) & mask {
		n := s.index[slot]
		if n == 0 {
			return nil
		}
		if (n^hash)&^mask != 0 {
			continue
		}
		if e := s.entry(n&mask - 1); e.key == key && e.class.policy == policy {
			return e
		}
	}
}

// insert adds a bucket that is not kept yet.
func (s *shard) insert(hash uint32, key string, c *store.Charge, b bucket.Bucket) *entry {
	if s.count >= s.max {
		s.endShuts(b.LastRefill, atOnce)
		if n, found := s.full(b.LastRefill); found {
			s.remove(n)
		}
	}
	of := s.class(kind{policy: c.Policy, limit: c.Limit})
	if s.count >= s.max {
		s.makeRoom(of.queue.group, b.LastRefill)
	}
	if 4*(s.count+1) > 3*len(s.index) {
		s.resize(max(16, 2*len(s.index)))
	}
	n := uint32(s.count)
	if int(n/chunkSize) == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkSize]entry))
	}
	s.count++
	e := s.entry(n)
	*e = entry{
		class:      of,
		key:        strings.Clone(key), // it may be a part of something large
		tokens:     b.Tokens,
		lastRefill: b.LastRefill,
		hash:       hash,
	}
	of.queue.group.keys += sizeOf(key)
	s.addIndex(n, hash)
	s.addDeadline(n, e)
	return e
}

// update stores what a charge made of an entry's bucket.
func (s *shard) update(e *entry, c *store.Charge, b bucket.Bucket) {
	sooner, of := c.Cost < 0, e.class
	if of.limit != c.Limit {
		s.hold(e, b.LastRefill)
	}
	if of.limit != c.Limit || of.held {
		of = s.class(kind{policy: of.policy, limit: c.Limit, shut: of.shut})
		sooner = true
	}
	if of.queue == e.class.queue {
		e.class, e.tokens, e.lastRefill = of, b.Tokens, b.LastRefill
		if sooner {
			s.advanceDeadline(e)
		}
		return
	}
	n := e.class.queue.deadlines[e.deadline].entry
	s.removeDeadline(e)
	e.class, e.tokens, e.lastRefill = of, b.Tokens, b.LastRefill
	s.addDeadline(n, e)
}

// remove forgets an entry, and moves the last one into its place.
func (s *shard) remove(n uint32) {
	e := s.entry(n)
	s.dropAside(e)
	s.dropShut(e)
	e.class.queue.group.keys -= sizeOf(e.key)
	s.removeDeadline(e)
	s.removeIndex(n)
	last := uint32(s.count - 1)
	if n != last {
		moved := s.entry(last)
		*e = *moved
		s.index[s.slot(last, moved.hash)] += n - last
		moved.class.queue.deadlines[moved.deadline].entry = n
	}
	*s.entry(last) = entry{}
	s.count--
	if spare := (s.count+chunkSize-1)/chunkSize + 1; spare < len(s.chunks) {
		s.chunks[spare] = nil
		s.chunks = s.chunks[:spare]
	}
	if len(s.index) > 16 && 8*s.count < len(s.index) {
		s.resize(len(s.index) / 2)
	}
}

func (s *shard) class(k kind) *class {
	if c := s.classes[k]; c != nil {
		return c
	}
	if s.classes == nil || len(s.classes) >= maxClasses {
		s.classes = make(map[kind]*class)
		s.dropEmpty()
	}
	l := bucket.Limit(k.limit)
	scale := l.Scale()
	switch {
	case k.shut:
		scale = ofShut
	case k.held:
		scale = ofHeld
	}
	q := s.queue(k.policy, scale)
	k.policy = q.group.policy
	c := &class{kind: k, fill: l.Fill(), queue: q}
	s.classes[k] = c
	return c
}

// dropEmpty drops groups and queues without entries. The caller has dropped all classes except those of entries, so
// no class refers to them.
func (s *shard) dropEmpty() {
	s.groups = slices.DeleteFunc(s.groups, func(g *group) bool {
		g.queues = slices.DeleteFunc(g.queues, func(q *queue) bool { return len(q.deadlines) == 0 })
		return g.count == 0
	})
}

func (s *shard) addIndex(n, hash uint32) {
	mask := uint32(len(s.index) - 1)
	slot := hash & mask
	for s.index[slot] != 0 {
		slot = (slot + 1) & mask
	}
	s.index[slot] = hash&^mask | (n + 1)
}

// slot returns the place of entry n in the index. n must have that hash.
func (s *shard) slot(n, hash uint32) uint32 {
	mask := uint32(len(s.index) - 1)
	slot := hash & mask
	for s.index[slot]&mask != n+1 {
		slot = (slot + 1) & mask
	}
	return slot
}

// removeIndex removes entry n from the index. It moves up the entries behind it that would not be found past the
// gap.
func (s *shard) removeIndex(n uint32) {
	mask := uint32(len(s.index) - 1)
	gap := s.slot(n, s.entry(n).hash)
	for slot := (gap + 1) & mask; s.index[slot] != 0; slot = (slot + 1) & mask {
		home := s.entry(s.index[slot]&mask-1).hash & mask
		if (slot-home)&mask >= (slot-gap)&mask {
			s.index[gap] = s.index[slot]
			gap = slot
		}
	}
	s.index[gap] = 0
}

func (s *shard) resize(slots int) {
	s.index = make([]uint32, slots)
	for n := range uint32(s.count) {
		s.addIndex(n, s.entry(n).hash)
	}
}
