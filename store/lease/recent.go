package lease

import (
	"hash/maphash"

	"github.com/go-tokenbucket/ratelimit/store"
)

// recent remembers when buckets were last charged. It has a fixed number of places, because the buckets that are charged
// once are too many for a map. Of two buckets with the same place, the later one has it.
type recent struct {
	seed    maphash.Seed
	buckets [1 << 14]struct {
		hash uint64
		at   int64 // when it was charged
	}
}

// hash returns the hash of c's bucket, and the entry for it.
func (r *recent) hash(c *store.Charge) (hash, place uint64) {
	hash = 31*maphash.String(r.seed, c.Policy) + maphash.String(r.seed, c.Key)
	return hash, hash % uint64(len(r.buckets))
}

// since reports whether c's bucket was charged at that time or later.
func (r *recent) since(c *store.Charge, at int64) bool {
	hash, place := r.hash(c)
	return r.buckets[place].hash == hash && r.buckets[place].at >= at
}

// note records that c's bucket was charged now without a lease, or that it had too few tokens.
func (s *Store) note(c *store.Charge, charged bool, now int64) {
	hash, place := s.seen.hash(c)
	b := &s.seen.buckets[place]
	if charged && s.maxHeld(c) > c.Cost {
		b.hash, b.at = hash, now
	} else if !charged && b.hash == hash {
		b.hash = 0
	}
}
