package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// Stats go through all that wraps a Store, also what others have written.
func TestStatsThroughAllDecorators(t *testing.T) {
	memory := teststore.OpenMemory(t, nil)
	denials := denialcache.New(foreign{memory}, denialcache.Config{MaxKeys: 2})
	away := fallback.New(foreign{denials}, foreign{teststore.OpenMemory(t, nil)}, fallback.Config{MaxKeys: 8})
	t.Cleanup(func() { away.Close() })
	leased := openLease(t, foreign{foreign{away}}, lease.Config{MaxKeys: 16})
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 5), Cost: 6}
	for range 3 {
		if ok, err := leased.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	for _, s := range []store.Store{leased, foreign{leased}} {
		got := store.StatsOf(s)
		if got.Leases == nil || got.Leases.Max != 16 || got.Fallback == nil || got.Fallback.Max != 8 || got.Denials == nil || got.Denials.Max != 2 {
			t.Fatalf("%+v", got)
		}
		if got.Denials.Answered != 2 || got.Denials.Kept != 1 || got.Fallback.Away || got.Redis != nil {
			t.Errorf("%+v, %+v", *got.Denials, *got.Fallback)
		}
		if _, ok := memory.(store.StatsReporter); ok && (got.Memory == nil || got.Fallback.Secondary.Memory == nil) {
			t.Errorf("%+v, %+v", got.Memory, got.Fallback.Secondary)
		}
	}
	if got := store.StatsOf(struct{ store.Store }{leased}); got != (store.Stats{}) {
		t.Errorf("%+v of a Store that hides another", got)
	}
}

// foreign is a decorator that does not report Stats.
type foreign struct{ inner store.Store }

func (f foreign) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	return f.inner.Take(ctx, charges, states)
}

func (f foreign) Unwrap() store.Store { return f.inner }
