package memstore

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements [store.Inspector]. It does not block. Its errors are those of Take.
func (s *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Bucket{}, fmt.Errorf("memstore: %w", err)
	}
	key = shortkey.Of(key)
	hash := s.hash(policy, key)
	shard := &s.shards[hash>>s.shift]
	now := s.now()
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := shard.find(uint32(hash), policy, key)
	if e == nil {
		return store.Bucket{}, nil
	}
	b := store.Bucket{Limit: e.class.limit, Credits: e.tokens, Age: e.bucket().Age(now)}
	if e.class.shut {
		shut := shard.shuts[e.name()]
		b.Blocked = duration(shut.Left(now))
		b.Locked = b.Blocked > 0 && shut.Lock
	}
	return b, nil
}
