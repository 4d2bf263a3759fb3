package memstore

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"strings"
	"sync"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A shard is a part of the buckets, with its own lock.
//
// A Go map finds the entries, which lie in chunks without gaps. A map with names and entries in it takes 150 bytes for
// each of a million keys: that row of the benchmarks may have 110. A map with pointers to entries takes 102, as the chunks
// do. But a sweep of a million entries then takes 100 ms for 11, and entries that are neighbours in a map stay so. Room is
// made where few buckets are spent, and that has to be seen from a few entries.
type shard struct {
	mu     sync.Mutex
	index  map[uint64]uint32 // the numbers of the entries, by the hashes of their names
	chunks []*[chunkSize]entry
	count  int

	max      int
	peak     int // the largest count since index was made
	keys     int // the bytes of the keys
	policies map[string]*policy
	classes  map[kind]*class
	blocks   map[uint64]keptBlock // by the hashes of their buckets
	counts   *counts
	seed     maphash.Seed
	_        [16]byte // two cache lines, of which most calls need the first
}

const chunkSize = 64

// An entry is one bucket.
type entry struct {
	class  *class
	key    string
	tokens int64 // in credits of class.limit
	at     int64 // the time of the last charge or, under a quota, the end of the period
	fullAt int64 // when it is full under all limits that have charged it, and no slot is held; it is not forgotten before
}

// A class is what entries of one kind share, to save memory.
type class struct {
	kind
	of    *policy
	count int
}

// A kind is the policy, the limit that an entry was last charged under, and whether it has a block. The limit is zero if
// it was blocked before it was ever charged.
type kind struct {
	policy  string
	limit   store.Limit
	blocked bool // the block may have ended
}

// A policy counts its buckets in a shard.
type policy struct {
	name  string
	count int
}

func (e *entry) bucket() bucket.Bucket {
	return bucket.Bucket{Tokens: e.tokens, At: e.at}
}

// hash returns where a bucket is: the upper bits are its shard.
func hash(seed maphash.Seed, policy, key string) uint64 {
	return maphash.String(seed, key) ^ bits.RotateLeft64(maphash.String(seed, policy), 32)
}

func (s *shard) hash(e *entry) uint64 { return hash(s.seed, e.class.policy, e.key) }

func (s *shard) entry(n uint32) *entry { return &s.chunks[n/chunkSize][n%chunkSize] }

func (s *shard) find(hash uint64, policy, key string) *entry {
	n, found := s.index[hash]
	if !found {
		return nil
	}
	if e := s.entry(n); e.key == key && e.class.policy == policy {
		return e
	}
	return nil
}

// insert adds a bucket that is not kept yet. Another one with the same hash is forgotten: no client can find one, and
// by chance it takes more keys than any store will see.
func (s *shard) insert(hash uint64, key string, k kind, b bucket.Bucket, now int64) *entry {
	if n, taken := s.index[hash]; taken {
		s.remove(n)
	}
	of := s.class(k)
	if s.count >= s.max {
		s.makeRoom(of.of, now)
	}
	if s.count/chunkSize == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkSize]entry))
	}
	if s.index == nil {
		s.index = make(map[uint64]uint32)
	}
	n := uint32(s.count)
	s.index[hash] = n
	s.count++
	s.peak = max(s.peak, s.count)
	e := s.entry(n)
	*e = entry{key: strings.Clone(key)} // it may be a part of something large
	s.keys += sizeOf(key)
	s.join(e, of)
	s.update(e, k.limit, b)
	return e
}

// update stores the bucket of an entry, under the limit of a charge.
func (s *shard) update(e *entry, l store.Limit, b bucket.Bucket) {
	if l != (store.Limit{}) {
		e.fullAt = l.KeepUntil(&e.class.limit, e.fullAt, b)
	}
	if e.class.limit != l {
		s.move(e, kind{e.class.policy, l, e.class.blocked})
	}
	e.tokens, e.at = b.Tokens, b.At
}

// held returns how many slots of the bucket are held.
func (e *entry) held() int64 { return e.class.limit.Held(e.tokens) }

// remove forgets an entry, and moves the last one into its place.
func (s *shard) remove(n uint32) {
	e := s.entry(n)
	hash := s.hash(e)
	delete(s.index, hash)
	if e.class.blocked {
		s.dropBlock(hash)
	}
	s.keys -= sizeOf(e.key)
	s.leave(e)
	s.count--
	last := s.entry(uint32(s.count))
	if e != last {
		*e = *last
		s.index[s.hash(e)] = n
	}
	*last = entry{}
	if spare := (s.count+chunkSize-1)/chunkSize + 1; spare < len(s.chunks) {
		s.chunks[spare] = nil
		s.chunks = s.chunks[:spare]
	}
	if s.peak > 2*chunkSize && 8*s.count < s.peak { // a map does not shrink
		index := make(map[uint64]uint32, s.count)
		maps.Copy(index, s.index)
		s.index, s.peak = index, s.count
	}
}

// class returns the class of a kind, which may have no entries yet.
func (s *shard) class(k kind) *class {
	if c := s.classes[k]; c != nil {
		return c
	}
	if s.classes == nil {
		s.classes, s.policies = make(map[kind]*class), make(map[string]*policy)
	}
	p := s.policies[k.policy]
	if p == nil {
		p = &policy{name: strings.Clone(k.policy)} // it may be a part of something large
		s.policies[p.name] = p
	}
	k.policy = p.name
	c := &class{kind: k, of: p}
	s.classes[k] = c
	return c
}

func (s *shard) move(e *entry, k kind) {
	to := s.class(k)
	s.leave(e)
	s.join(e, to)
}

func (s *shard) join(e *entry, c *class) {
	if c.count == 0 {
		s.classes[c.kind] = c
	}
	if c.of.count == 0 {
		s.policies[c.policy] = c.of
	}
	e.class = c
	c.count++
	c.of.count++
}

// leave takes e out of its class, which ends with its last entry.
func (s *shard) leave(e *entry) {
	c := e.class
	c.count--
	c.of.count--
	if c.count == 0 {
		delete(s.classes, c.kind)
	}
	if c.of.count == 0 {
		delete(s.policies, c.policy)
	}
}
