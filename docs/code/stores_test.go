package code_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// A mapStore keeps buckets in a map.
type mapStore struct {
	clock   func() time.Time
	mu      sync.Mutex
	buckets map[bucketName]store.Kept
}

type bucketName struct{ policy, key string }

func newMapStore(clock func() time.Time) *mapStore {
	return &mapStore{clock: clock, buckets: make(map[bucketName]store.Kept)}
}

func (s *mapStore) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("mapstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make([]store.Kept, len(charges))
	for i, c := range charges {
		kept[i] = s.buckets[bucketName{c.Policy, c.Key}]
	}
	ok := store.Decide(charges, kept, states, s.now())
	for i, c := range charges {
		s.keep(bucketName{c.Policy, c.Key}, kept[i])
	}
	return ok, nil
}

// Block implements store.Blocker.
func (s *mapStore) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	if err := store.ValidateBlock(policy, key, b); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("mapstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.buckets[bucketName{policy, key}]
	kept.SetBlock(b, s.now())
	s.keep(bucketName{policy, key}, kept)
	return false, nil
}

// Inspect implements store.Inspector.
func (s *mapStore) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Bucket{}, fmt.Errorf("mapstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buckets[bucketName{policy, key}].Bucket(s.now()), nil
}

// Sweep forgets the buckets that have refilled. Call it now and then.
func (s *mapStore) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for name, kept := range s.buckets {
		if kept.Expires() <= now {
			delete(s.buckets, name)
		}
	}
}

func (s *mapStore) keep(name bucketName, kept store.Kept) {
	if kept == (store.Kept{}) {
		delete(s.buckets, name)
	} else {
		s.buckets[name] = kept
	}
}

func (s *mapStore) now() int64 { return s.clock().UnixMicro() }

func TestMapStore(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, clock func() time.Time) store.Store {
		return sweptStore{newMapStore(clock)}
	})
}

// A sweptStore forgets when a test asks for it.
type sweptStore struct{ *mapStore }

func (s sweptStore) Forget(time.Duration) { s.Sweep() }
