package memstore

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Restore sets a bucket to b, which Inspect of this Store or of another one has returned. From then on, Inspect and Take
// answer as that Store does, whatever its clock says. A Bucket whose Limit is zero removes the bucket. Degraded is
// ignored.
//
// Use it to copy buckets into a Store for a trial. A copy is not held for an earlier limit: it is forgotten when it is
// full. To make room, Restore may forget another bucket, as Take may. It panics if policy or key is empty, or if b.Limit
// is neither zero nor made by [store.NewLimit].
func (s *Store) Restore(policy, key string, b store.Bucket) {
	c := store.Charge{Policy: policy, Key: key, Limit: b.Limit, Cost: store.Reset}
	if b.Limit == (store.Limit{}) {
		c.Limit = anyLimit
	}
	if err := store.Validate([]store.Charge{c}, make([]store.State, 1)); err != nil {
		panic("memstore: Restore: " + err.Error())
	}
	key = shortkey.Of(key)
	hash := s.hash(policy, key)
	shard := &s.shards[hash>>s.shift]
	now := s.now()
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e := shard.find(uint32(hash), policy, key); e != nil {
		shard.remove(e.class.queue.deadlines[e.deadline].entry)
	}
	if b.Limit == (store.Limit{}) {
		return
	}
	e := shard.insert(uint32(hash), key, &c, bucket.Bucket{Tokens: b.Credits, Unit: b.Limit.Unit, LastRefill: now})
	e.lastRefill = now - b.Age.Microseconds() // which may be negative
	shard.advanceDeadline(e)
	if left := b.Blocked.Microseconds(); left > 0 {
		shard.setShut(e, bucket.Shut{Until: now + left, For: left, Lock: b.Locked})
	}
	s.sweepLater()
}

// anyLimit stands for the limit of a bucket that is to be removed.
var anyLimit = store.Limit{Unit: 1, Refill: 1, Capacity: 1}
