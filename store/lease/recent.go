package lease

import (
	"hash/maphash"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// recent knows which buckets were charged a short while ago, in a fixed room. Those that were charged once are too many
// for a map. If two buckets share a place, the later one has it.
type recent struct {
	seed maphash.Seed

	// A tag is one half of a bucket's hash, and the time of the charge in units of 1,024 microseconds.
	tags [1 << 14]uint64
}

func (r *recent) find(c *store.Charge) (tag *uint64, hash uint64) {
	hash = 31*maphash.String(r.seed, c.Policy) + maphash.String(r.seed, c.Key)
	return &r.tags[hash%uint64(len(r.tags))], hash
}

// within reports whether c's bucket was charged within hold before now.
func (r *recent) within(c *store.Charge, hold time.Duration, now int64) bool {
	tag, hash := r.find(c)
	return (*tag^hash)>>32 == 0 && uint32(now>>10)-uint32(*tag) <= uint32(min(hold.Microseconds()>>10, math.MaxInt32))
}

// note records that c's bucket was charged without a lease, or that it had too few tokens.
func (s *Store) note(c *store.Charge, charged bool, now int64) {
	tag, hash := s.seen.find(c)
	switch {
	case charged && s.most(c) > c.Cost:
		*tag = hash&^(1<<32-1) | uint64(uint32(now>>10))
	case !charged && (*tag^hash)>>32 == 0:
		*tag = 0
	}
}
