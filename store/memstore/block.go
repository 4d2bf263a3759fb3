package memstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A keptBlock is the block or the lock of a bucket. Few buckets have one, so it is not in their entries. The class of an
// entry says whether it has one, so that calls of other buckets do not look for it.
type keptBlock struct {
	bucket.Block
	since  int64
	reason string
}

// setBlock blocks the bucket of e, or ends its block if b is zero.
func (s *shard) setBlock(hash uint64, e *entry, b keptBlock) {
	blocked := b.Block != bucket.Block{}
	if blocked {
		if s.blocks == nil {
			s.blocks = make(map[uint64]keptBlock)
		}
		s.blocks[hash] = b
	} else {
		s.dropBlock(hash)
	}
	if blocked != e.class.blocked {
		s.move(e, kind{e.class.policy, e.class.limit, blocked})
	}
}

func (s *shard) dropBlock(hash uint64) {
	delete(s.blocks, hash)
	if len(s.blocks) == 0 {
		s.blocks = nil // a map does not shrink
	}
}

// Block implements [store.Blocker]. It does not wait. Its errors are those of Take.
func (s *Store) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	if err := store.ValidateBlock(policy, key, b); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("memstore: %w", err)
	}
	shard, key, hash := s.locate(policy, key)
	now := s.now()
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := shard.find(hash, policy, key)
	if b.For == 0 {
		if e != nil && e.class.blocked {
			shard.setBlock(hash, e, keptBlock{})
		}
		return false, nil
	}
	if e == nil {
		e = shard.insert(hash, key, kind{policy, store.Limit{}, false}, bucket.Bucket{}, now)
	}
	shard.setBlock(hash, e, keptBlock{
		Block:  bucket.Block{Until: now + bucket.Microseconds(b.For)},
		since:  now,
		reason: strings.Clone(b.Reason),
	})
	s.sweepLater()
	return false, nil
}

// Inspect implements [store.Inspector]. It does not wait. Its errors are those of Take.
func (s *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Bucket{}, fmt.Errorf("memstore: %w", err)
	}
	shard, key, hash := s.locate(policy, key)
	now := s.now()
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := shard.find(hash, policy, key)
	if e == nil {
		return store.Bucket{}, nil
	}
	var b store.Bucket
	switch l := e.class.limit; {
	case l.IsQuota():
		b = store.Bucket{Limit: l, Credits: e.tokens, Rest: duration(l.Rest(e.bucket(), now))}
	case l.IsConcurrency():
		b = store.Bucket{Limit: l, Credits: e.tokens}
	case l != (store.Limit{}):
		b = store.Bucket{Limit: l, Credits: e.tokens, Age: bucket.Age(e.at, now)}
	}
	if e.class.blocked {
		if blk := shard.blocks[hash]; blk.Left(now) > 0 {
			b.Blocked, b.BlockedSince = duration(blk.Left(now)), duration(max(0, now-blk.since))
			b.Locked, b.Reason = blk.Lock, blk.reason
		}
	}
	return b, nil
}

// locate returns the shard of a bucket, its key as it is kept there, and its hash.
func (s *Store) locate(policy, key string) (*shard, string, uint64) {
	key = keyname.Short(key)
	hash := hash(s.seed, policy, key)
	return &s.shards[hash>>s.shift], key, hash
}

func duration(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}
