package memstore

import (
	"math/bits"
	"math/rand/v2"

	"github.com/go-tokenbucket/ratelimit/store"
)

// makeRoom looks at minSeen buckets of the policy that makes room, and at up to maxSeen of them while none has a token. If
// half of the buckets of a policy have none, one of these goes for one new key of 2^32.
const (
	minSeen = 8
	maxSeen = 32
)

// makeRoom forgets a bucket for a new one of p. A full bucket goes first. Otherwise a bucket goes of the policy that crowded
// returns. Of the buckets at which makeRoom looks, it is the one that has spent the smallest part of its burst.
func (s *shard) makeRoom(p *policy, now int64) {
	from := s.crowded(p)
	least, victim, seen := 0.0, uint32(0), 0
	// Steps by the golden ratio lead to each entry once, and soon to all parts of the shard, because entries of one time
	// lie together.
	size := bits.Len32(uint32(s.count - 1))
	n, step, mask := rand.Uint32(), uint32(0x9e3779b1)>>(32-size)|1, uint32(1)<<size-1
	for range mask + 1 {
		if n = (n + step) & mask; n >= uint32(s.count) {
			continue
		}
		e := s.entry(n)
		if s.forgettable(e, now) {
			s.remove(n)
			return
		}
		if e.class.of != from {
			continue
		}
		if loss := s.loss(e, now); seen == 0 || loss < least {
			least, victim = loss, n
		}
		if seen++; seen >= minSeen && least < spent || seen >= maxSeen {
			break
		}
	}
	s.counts.evicted.add(from.name)
	s.remove(victim)
}

// crowded returns the policy that makes room for a bucket of p. A client that makes up keys can fill a shard with
// buckets of one policy. So each policy has an equal share of the shard. A policy that has its share makes room among its
// own buckets, and otherwise the largest does.
func (s *shard) crowded(p *policy) *policy {
	if p.count*len(s.policies) >= s.max {
		return p
	}
	largest := p
	for _, other := range s.policies {
		if other.count > largest.count {
			largest = other
		}
	}
	return largest
}

// These are the least losses of a bucket without a token, of one of which slots are held, and of a blocked one. No part of a
// burst is larger, because a debt has at most 2^52 credits.
const (
	spent   = 1 << 53
	held    = 1 << 54
	blocked = 1 << 55
)

// loss returns how much is lost if e is forgotten. It is the part of its burst that is spent. A bucket without a token
// comes after all that have one, then buckets of which slots are held, and then blocked ones, by the ends of their blocks.
func (s *shard) loss(e *entry, now int64) float64 {
	if left := s.blockLeft(e, now); left > 0 {
		return blocked + float64(left)
	}
	l := e.class.limit
	if l == (store.Limit{}) {
		return 0
	}
	tokens := l.Advance(&e.class.limit, e.bucket(), now).Tokens
	part := float64(l.Capacity-tokens) / float64(l.Capacity)
	if e.held() > 0 {
		return held + part
	}
	if tokens < l.Unit {
		return spent + part
	}
	return part
}
