package fallback

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

func TestReplicasFuncInForce(t *testing.T) {
	type call struct {
		after   time.Duration // the call before
		returns int
		inForce int64
	}
	for name, calls := range map[string][]call{
		"more count at once":                    {{0, 2, 2}, {time.Second, 4, 4}},
		"fewer count when that has held":        {{0, 4, 4}, {time.Second, 2, 4}, {4 * time.Second, 2, 4}, {time.Second, 2, 2}},
		"a number that flutters is the largest": {{0, 4, 4}, {time.Second, 2, 4}, {4 * time.Second, 3, 4}, {time.Second, 2, 3}},
		"fewer for a moment":                    {{0, 4, 4}, {time.Second, 2, 4}, {4 * time.Second, 4, 4}, {time.Second, 2, 4}, {4 * time.Second, 2, 4}},
		"fewer after nobody asked for long":     {{0, 4, 4}, {time.Hour, 2, 2}},
		"below 1 is 1":                          {{0, 0, 1}, {time.Second, -7, 1}},
		"not asked again at once":               {{0, 2, 2}, {99 * time.Millisecond, 4, 2}, {time.Millisecond, 4, 4}},
	} {
		returns, now := 0, int64(0)
		r := newReplicas(0, func() int { return returns })
		for i, c := range calls {
			returns, now = c.returns, now+c.after.Microseconds()
			r.refresh(func() int64 { return now })
			if n := r.inForce.Load(); n != c.inForce {
				t.Errorf("%s: call %d: %d in force, want %d", name, i, n, c.inForce)
			}
		}
	}
}

func TestReplicasFuncIsCalledUnderNoLock(t *testing.T) {
	var f *Store
	called := 0
	f = New(absent{}, nil, Config{Failures: 1, Logger: slog.New(slog.DiscardHandler), ReplicasFunc: func() int {
		called++
		if !f.spent.mu.TryLock() || !f.replicas.mu.TryLock() {
			t.Error("a lock is held")
			return 1
		}
		f.replicas.mu.Unlock()
		f.spent.mu.Unlock()
		return 1
	}})
	defer f.Close()
	l, _ := store.NewLimit(1, time.Second, 1)
	c := []store.Charge{{Policy: "p", Key: "k", Limit: l, Cost: 1}}
	for range 2 { // by a call that fails, and in the outage
		if _, err := f.Take(t.Context(), c, make([]store.State, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if called == 0 {
		t.Error("not called")
	}
}

// absent is a Store that fails.
type absent struct{}

func (absent) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, store.ErrNotCharged
}
