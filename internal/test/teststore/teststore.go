// Package teststore has stores for the tests of decorators: they count their calls, fail, hang or give fixed answers.
package teststore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// OpenMemory returns a memstore.Store that forgets no bucket. With a clock that goes backwards, forgotten buckets
// would change the results.
func OpenMemory(_ testing.TB, clock func() time.Time) store.Store {
	s := ratelimit.Must(memstore.New(memstore.Config{Clock: clock}))
	s.Close()
	return s
}

// Limit compiles a limit that is known to fit.
func Limit(t testing.TB, rate int64, per time.Duration, burst int64) store.Limit {
	t.Helper()
	l, err := store.NewLimit(rate, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Months takes some tokens of a bucket that takes years to refill.
func Months(t testing.TB, cost int64) store.Charge {
	t.Helper()
	return store.Charge{Policy: "p", Key: "k", Limit: Limit(t, 1, 100*time.Hour, 600), Cost: cost}
}

// ResetOf returns a charge that removes c's bucket, by a limit that is not that of c.
func ResetOf(t testing.TB, c store.Charge) store.Charge {
	t.Helper()
	return store.Charge{Policy: c.Policy, Key: c.Key, Limit: Limit(t, 1, time.Second, 10), Cost: store.Reset}
}

// TakeAllowed makes a call that must be allowed, and returns the states of its buckets.
func TakeAllowed(t testing.TB, s store.Store, charges ...store.Charge) []store.State {
	t.Helper()
	states := make([]store.State, len(charges))
	if ok, err := s.Take(t.Context(), charges, states); !ok || err != nil {
		t.Fatalf("%t, %v, %+v", ok, err, states)
	}
	return states
}

// Counted is a Store that counts the calls that reach it.
type Counted struct {
	store.Store
	Calls atomic.Int64
}

func (s *Counted) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	s.Calls.Add(1)
	return s.Store.Take(ctx, charges, states)
}

func (s *Counted) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return store.Inspect(ctx, s.Store, policy, key)
}

func (s *Counted) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	s.Calls.Add(1)
	return store.SetBlock(ctx, s.Store, policy, key, b)
}

// Answering is a Store that gives one answer, after some time.
type Answering struct {
	OK    bool
	State store.State
	Wait  func()
}

func (s *Answering) Take(_ context.Context, _ []store.Charge, states []store.State) (bool, error) {
	if s.Wait != nil {
		s.Wait()
	}
	for i := range states {
		states[i] = s.State
	}
	return s.OK, nil
}

// Intercepted is a Store each of whose calls is first put to a function, and fails by its error.
type Intercepted struct {
	store.Store
	before atomic.Pointer[func(store.Charge) error]
}

// Intercept sets the function, which gets the first charge of each call, or one with the name of a bucket that is blocked.
func (s *Intercepted) Intercept(before func(store.Charge) error) { s.before.Store(&before) }

func (s *Intercepted) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if before := s.before.Load(); before != nil {
		if err := (*before)(charges[0]); err != nil {
			return false, err
		}
	}
	return s.Store.Take(ctx, charges, states)
}

func (s *Intercepted) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return store.Inspect(ctx, s.Store, policy, key)
}

func (s *Intercepted) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	if before := s.before.Load(); before != nil {
		if err := (*before)(store.Charge{Policy: policy, Key: key}); err != nil {
			return false, err
		}
	}
	return store.SetBlock(ctx, s.Store, policy, key, b)
}

// OneByOne is a Store that makes its calls one after another. If calls were concurrent, one of them could be refused
// because another holds a lease of a whole burst.
type OneByOne struct {
	mu sync.Mutex
	store.Store
}

func (s *OneByOne) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Inspect(ctx, s.Store, policy, key)
}

func (s *OneByOne) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Take(ctx, charges, states)
}

func (s *OneByOne) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.SetBlock(ctx, s.Store, policy, key, b)
}

// Monotonic returns clock with a monotonic reading.
func Monotonic(clock func() time.Time) func() time.Time {
	now, start := time.Now(), clock()
	base := now.Add(-time.Duration(now.Nanosecond() % 1000)) // to the microsecond
	return func() time.Time { return base.Add(clock().Sub(start)) }
}
