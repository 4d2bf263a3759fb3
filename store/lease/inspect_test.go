package lease_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Inspect counts the held tokens, and gives none back. A look, which does, then finds the same.
func TestInspectGivesNoTokensBack(t *testing.T) {
	now := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC)
	clock := teststore.Monotonic(func() time.Time { return now })
	inner := ratelimit.Must(memstore.New(memstore.Config{Clock: clock}))
	inner.Close()
	leased := openLease(t, inner, lease.Config{Clock: clock, Hold: time.Hour, Fraction: 0.5, MaxKeys: 16})
	random := rand.New(rand.NewPCG(18, 1))
	limit, holding := teststore.Limit(t, 10, time.Second, 40), 0
	steps := testsize.Of(1000, 3000)
	for i := range steps {
		c := store.Charge{Policy: "p", Key: string(rune('a' + random.IntN(2))), Limit: limit, Cost: 1}
		if random.IntN(20) == 0 {
			c.Cost = random.Int64N(40) - 2
		}
		if _, err := leased.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); err != nil {
			t.Fatal(err)
		}
		before, stats := contents(t, inner, c), *leased.Stats().Leases
		got, err := leased.Inspect(t.Context(), c.Policy, c.Key)
		if err != nil || contents(t, inner, c) != before || *leased.Stats().Leases != stats {
			t.Fatalf("step %d: the store holds %+v, before %+v, error %v", i, contents(t, inner, c), before, err)
		}
		if stats.Held > 0 {
			holding++
		}
		if random.IntN(3) == 0 {
			c.Cost = 0
			if states := teststore.TakeAllowed(t, leased, c); got.State(limit) != states[0] {
				t.Fatalf("step %d: %+v is %+v, and a look finds %+v", i, got, got.State(limit), states[0])
			}
		}
		now = now.Add(time.Duration(random.IntN(60)) * time.Millisecond)
	}
	if holding < steps/10 {
		t.Errorf("the lease held tokens in %d steps only", holding)
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
