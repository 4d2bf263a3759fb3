// Package overlay lets calls be decided as a store would decide them, and leaves the store as it is. A copy of each
// bucket is made when a charge names it for the first time. From then on the copy is charged.
package overlay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/internal/readonly"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// maxBuckets is how many buckets fit. Nobody explains a request that charges as many. For more, a Store takes longer to
// be made.
const maxBuckets = 1 << 16

// New returns a Store that decides as base would, and only reads base. Its time is at, and moves by Pass only.
func New(base store.Store, at time.Time) *Store {
	return open(base, func() time.Time { return at })
}

func open(base store.Store, clock func() time.Time) *Store {
	s := &Store{base: base, copied: make(map[name]*state)}
	s.copies = memstore.New(memstore.Config{MaxKeys: maxBuckets, Clock: func() time.Time { return clock().Add(s.passed) }})
	s.copies.Close() // it needs no timer, because it forgets all buckets soon
	return s
}

// A Store is a [store.Store] with copies of the buckets of another one. It needs no Close.
type Store struct {
	base   store.Store
	copies *memstore.Store

	mu     sync.Mutex // held during each call, so that each bucket is copied once
	copied map[name]*state
	passed time.Duration
}

type name struct{ policy, key string }

// A state is that of a copy.
type state struct{ degraded, charged bool }

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
)

// Pass moves the time of s forwards, as if a request had waited.
func (s *Store) Pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed += d
}

// Take implements [store.Store]. It fails if base cannot be read.
func (s *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := append([]store.Charge(nil), charges...)
	for i := range asked {
		if err := s.copy(ctx, &asked[i]); err != nil {
			return false, err
		}
	}
	ok, err := s.copies.Take(ctx, asked, states)
	if err != nil {
		return false, fmt.Errorf("overlay: %w", err)
	}
	for i := range asked {
		of := s.copied[name{asked[i].Policy, asked[i].Key}]
		of.charged = of.charged || asked[i].Cost != 0
		states[i].Degraded = of.degraded
	}
	return ok, nil
}

// copy copies c's bucket, if that was not done before. A stand-in is asked each time, because it may not answer for every
// charge. It charges the bucket under its share of c's limit, and so does the copy. The share depends on c's cost.
func (s *Store) copy(ctx context.Context, c *store.Charge) error {
	n := name{c.Policy, c.Key}
	of := s.copied[n]
	if of != nil && !of.degraded {
		return nil
	}
	b, err := s.read(ctx, c)
	if err != nil {
		return err
	}
	if of == nil || !of.charged || !b.Degraded {
		s.restore(c, b)
		s.copied[n] = &state{degraded: b.Degraded}
	}
	if b.Degraded && b.Limit != (store.Limit{}) {
		c.Limit = b.Limit
	}
	return nil
}

// restore sets the copy of c's bucket to b, which was read before any time has passed.
func (s *Store) restore(c *store.Charge, b store.Bucket) {
	passed := s.passed
	s.passed = 0
	defer func() { s.passed = passed }()
	s.copies.Restore(c.Policy, c.Key, b)
}

// read returns what base keeps of c's bucket.
func (s *Store) read(ctx context.Context, c *store.Charge) (store.Bucket, error) {
	ctx = readonly.With(ctx, c)
	b, err := store.Inspect(ctx, s.base, c.Policy, c.Key)
	if errors.Is(err, errors.ErrUnsupported) {
		return s.look(ctx, c)
	}
	return b, err
}

// look returns the bucket of c by its state, for a base that is no Inspector. If a stand-in answers, its whole tokens are
// known, and the times are not.
func (s *Store) look(ctx context.Context, c *store.Charge) (store.Bucket, error) {
	asked, states := []store.Charge{{Policy: c.Policy, Key: c.Key, Limit: c.Limit}}, make([]store.State, 1)
	if _, err := s.base.Take(ctx, asked, states); err != nil {
		return store.Bucket{}, err
	}
	b := infer.Bucket(&asked[0], &states[0])
	if b.Degraded && b.Blocked == 0 { // under a share of the limit, which is not known
		b.Credits = min(states[0].Remaining, c.Limit.Capacity/c.Limit.Unit) * c.Limit.Unit
	}
	return b, nil
}

// Inspect implements [store.Inspector]. It returns the copy of a bucket if a charge has named it.
func (s *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.copied[name{policy, key}]; of != nil {
		b, err := s.copies.Inspect(ctx, policy, key)
		b.Degraded = of.degraded && err == nil
		return b, err
	}
	return store.Inspect(readonly.With(ctx, &store.Charge{Policy: policy, Key: key}), s.base, policy, key)
}
