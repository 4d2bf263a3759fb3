package fallback_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// undegraded hides that a stand-in answered.
type undegraded struct{ store.Store }

func (s undegraded) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := s.Store.Take(ctx, charges, states)
	for i := range states {
		states[i].Degraded = false
	}
	return ok, err
}

func (s undegraded) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	b, err := store.Inspect(ctx, s.Store, policy, key)
	b.Degraded = false
	return b, err
}

func TestFallbackContract(t *testing.T) {
	quiet := fallback.Config{Logger: slog.New(slog.DiscardHandler)}
	t.Run("the primary answers", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
			f := fallback.New(teststore.OpenMemory(t, clock), nil, quiet)
			t.Cleanup(func() { f.Close() })
			return f
		})
	})
	t.Run("the secondary answers", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
			away := new(teststore.Faulty)
			away.Have(teststore.Broken)
			cfg := quiet
			cfg.Failures = 1
			f := fallback.New(away, teststore.OpenMemory(t, clock), cfg)
			t.Cleanup(func() { f.Close() })
			first := store.Charge{Policy: "first", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 1)}
			if _, err := f.Take(t.Context(), []store.Charge{first}, make([]store.State, 1)); err != nil || f.Away() == nil {
				t.Fatal(err, f.Away())
			}
			return undegraded{f}
		})
	})
}
