package fallback_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// A side is a fallback of which one store answers, and gets the refunds. It hides which one.
type side struct {
	*fallback.Store
	standby bool // the secondary
}

func (s side) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Standby = s.standby
	}
	ok, err := s.Store.Take(ctx, charges, states)
	for i := range states {
		states[i].Degraded = false
	}
	return ok, err
}

func (s side) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	b, err := s.Store.Inspect(ctx, policy, key)
	b.Degraded = false
	return b, err
}

func (s side) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	_, err := s.Store.Block(ctx, policy, key, b)
	return false, err
}

func TestFallbackContract(t *testing.T) {
	t.Run("the primary answers", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
			return side{openFallback(t, teststore.OpenMemory(t, clock), fallback.Config{}), false}
		})
	})
	t.Run("the secondary answers", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
			away := new(teststore.Faulty)
			away.Have(teststore.Broken)
			f := ratelimit.Must(fallback.New(away, teststore.OpenMemory(t, clock), fallback.Config{Logger: quiet, Failures: 1}))
			t.Cleanup(func() { f.Close() })
			first := store.Charge{Policy: "first", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 1)}
			if _, err := f.Take(t.Context(), []store.Charge{first}, make([]store.State, 1)); err != nil || f.Away() == nil {
				t.Fatal(err, f.Away())
			}
			return side{f, true}
		})
	})
}
