package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/overlay"
	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// opaque hides that a Store is an Inspector.
type opaque struct{ store.Store }

// What an explanation finds is what a call then finds, and the lease holds its tokens meanwhile.
func TestAnExplanationGivesNoTokensBack(t *testing.T) {
	for name, hide := range map[string]func(store.Store) store.Store{
		"an Inspector": func(s store.Store) store.Store { return s },
		"no Inspector": func(s store.Store) store.Store { return opaque{s} },
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC)
			clock := teststore.Monotonic(func() time.Time { return now })
			inner := memstore.New(memstore.Config{Clock: clock})
			inner.Close()
			leased := openLease(t, hide(inner), lease.Config{Clock: clock, Hold: time.Hour, Fraction: 0.5, MaxKeys: 16})
			random := rand.New(rand.NewPCG(18, 1))
			limits := []store.Limit{teststore.Limit(t, 10, time.Second, 40), teststore.Limit(t, 20, time.Second, 30)} // of which a State says all
			holding := 0
			for i := range 3000 {
				c := store.Charge{Policy: "p", Key: string(rune('a' + random.IntN(2))), Limit: limits[0], Cost: 1}
				switch random.IntN(20) {
				case 0:
					c.Limit = limits[1]
				case 1:
					c.Cost = random.Int64N(40)
				case 2:
					c.Shadow = true
				case 3:
					c.Cost = -2
				}
				want, wantStats := contents(t, inner, c), leased.Stats().Leases
				if wantStats.Held > 0 {
					holding++
				}
				charges, got, states := []store.Charge{c}, make([]store.State, 1), make([]store.State, 1)
				gotOK, err := overlay.New(leased, now).Take(t.Context(), charges, got)
				if err != nil {
					t.Fatal(err)
				}
				if after, stats := contents(t, inner, c), leased.Stats().Leases; after != want || *stats != *wantStats {
					t.Fatalf("step %d: %+v, %+v, want %+v, %+v", i, after, stats, want, wantStats)
				}
				ok, err := leased.Take(t.Context(), charges, states)
				if ok != gotOK || err != nil || got[0] != states[0] {
					t.Fatalf("step %d: %+v of %+v and %+v\ngot  %t %+v\nwant %t %+v, %v", i, c, want, wantStats, gotOK, got, ok, states, err)
				}
				now = now.Add(time.Duration(random.IntN(60)) * time.Millisecond)
			}
			if holding < 500 {
				t.Errorf("the lease held tokens in %d steps only", holding)
			}
		})
	}
}

func contents(t *testing.T, s *memstore.Store, c store.Charge) store.Bucket {
	t.Helper()
	b, err := s.Inspect(t.Context(), c.Policy, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// away fails all calls from some time on.
type away struct {
	store.Store
	err error
}

func (a *away) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if a.err != nil {
		return false, a.err
	}
	return a.Store.Take(ctx, charges, states)
}

func (a *away) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if a.err != nil {
		return store.Bucket{}, a.err
	}
	return store.Inspect(ctx, a.Store, policy, key)
}

// Held tokens pay while the store fails. So they do in an explanation.
func TestAnExplanationKnowsWhatALeaseCanPayAlone(t *testing.T) {
	now := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC)
	clock := teststore.Monotonic(func() time.Time { return now })
	inner := &away{Store: teststore.OpenMemory(t, clock)}
	leased := lease.New(inner, lease.Config{Clock: clock, Hold: time.Hour, Fraction: 0.5})
	defer leased.Close() // which fails to give tokens back
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 10, time.Second, 40), Cost: 1}
	for range 4 {
		teststore.Must(t, leased, c)
	}
	inner.err = errors.New("away")
	paid, failed := 0, 0
	for range 10 {
		charges, got, states := []store.Charge{c}, make([]store.State, 1), make([]store.State, 1)
		gotOK, gotErr := overlay.New(leased, now).Take(t.Context(), charges, got)
		ok, err := leased.Take(t.Context(), charges, states)
		if gotOK != ok || (gotErr == nil) != (err == nil) || err == nil && got[0] != states[0] {
			t.Fatalf("got %t, %v, %+v, want %t, %v, %+v", gotOK, gotErr, got, ok, err, states)
		}
		if err == nil {
			paid++
		} else {
			failed++
		}
	}
	if paid == 0 || failed == 0 {
		t.Errorf("%d calls were paid and %d failed, want both", paid, failed)
	}
}
