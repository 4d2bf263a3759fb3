package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// A balance is a Store that counts the tokens that it gives and gets back.
type balance struct {
	store.Store
	gave, got atomic.Int64
	fails     atomic.Bool
	degraded  atomic.Bool
}

func (b *balance) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if b.fails.Load() {
		return false, teststore.ErrBroken
	}
	ok, err := b.Store.Take(ctx, charges, states)
	for i, c := range charges {
		switch {
		case !ok || err != nil || !states[i].Allowed || c.Cost == store.Reset:
		case c.Cost < 0:
			b.got.Add(-c.Cost)
		default:
			b.gave.Add(c.Cost)
		}
		states[i].Degraded = b.degraded.Load()
	}
	return ok, err
}

func TestStatsCountWhatIsLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &balance{Store: teststore.OpenMemory(t, nil)}
		s := ratelimit.Must(lease.New(b, lease.Config{MaxKeys: 3}))
		want := func(want store.LeaseStats) {
			t.Helper()
			want.Max = 3
			if got := s.Stats().Leases; got == nil || *got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		c := teststore.Months(t, 1)
		teststore.TakeAllowed(t, s, c)
		want(store.LeaseStats{})
		teststore.TakeAllowed(t, s, c) // takes 2
		want(store.LeaseStats{Leases: 1, Held: 1, Drawn: 1})
		teststore.TakeAllowed(t, s, c)
		want(store.LeaseStats{Drawn: 1})
		teststore.TakeAllowed(t, s, c) // takes 4
		want(store.LeaseStats{Leases: 1, Held: 3, Drawn: 4})
		teststore.TakeAllowed(t, s, teststore.Months(t, 0))
		want(store.LeaseStats{Drawn: 4, Returned: 3})

		takes(t, s, 3, c) // the first takes 2, the last takes 4
		want(store.LeaseStats{Leases: 1, Held: 3, Drawn: 8, Returned: 3})
		teststore.TakeAllowed(t, s, teststore.ResetOf(t, c))
		want(store.LeaseStats{Drawn: 8, Returned: 3, Lost: 3})

		for s.Stats().Leases.Held == 0 {
			teststore.TakeAllowed(t, s, c)
		}
		before := *s.Stats().Leases
		b.fails.Store(true)
		if err := s.Close(); err == nil {
			t.Error("no error")
		}
		want(store.LeaseStats{Drawn: before.Drawn, Returned: 3, Lost: 3 + before.Held})
	})
}

func TestStatsCountWhatAStandInAndAFailedDrawLose(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		b := &balance{Store: r.Behind.Store}
		r.Behind.Store = b
		s := r.Store.(*lease.Store)
		c := teststore.Months(t, 1)
		r.Take(c)
		b.degraded.Store(true)
		r.Take(c)
		if got := *s.Stats().Leases; got.Lost != 1 || got.Drawn != 1 || got.Held != 0 {
			t.Errorf("by a stand-in: %+v", got)
		}
		b.degraded.Store(false)
		r.takes(4, c)
		held := s.Stats().Leases.Held
		b.fails.Store(true)
		c.Cost = held + 1
		if _, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); err == nil || held == 0 {
			t.Fatal(err, held)
		}
		if got := *s.Stats().Leases; got.Lost != 1+held || got.Held != 0 {
			t.Errorf("with a rest of %d: %+v", held, got)
		}
		b.fails.Store(false)
	})
}

// Each token that the store gave was used by a call, or went back, or is held, or lost, whatever callers, the collector, calls
// that give back, and Close do at once. None is lost where buckets refill slowly, and nobody resets them.
func TestStatsOfLeasesAddUp(t *testing.T) {
	slow := teststore.Limit(t, 1, time.Hour, 50_000)
	for name, c := range map[string]struct {
		limits []store.Limit
		loses  bool
	}{
		"quick and slow": {[]store.Limit{teststore.Limit(t, 1000, time.Second, 100), teststore.Limit(t, 10, time.Second, 200), slow}, true},
		"slow":           {[]store.Limit{slow}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { addUp(t, c.limits, c.loses) })
		})
	}
}

func addUp(t *testing.T, limits []store.Limit, loses bool) {
	b := &balance{Store: teststore.OpenMemory(t, nil)}
	s := openLease(t, b, lease.Config{Fraction: 0.5, MaxKeys: 4})
	var used atomic.Int64
	call := func(r *rand.Rand) {
		charges := make([]store.Charge, 1+r.IntN(2))
		for i := range charges {
			k := r.IntN(8)
			charges[i] = store.Charge{Policy: fmt.Sprint("p", i), Key: fmt.Sprint(k), Limit: limits[(k+r.IntN(50)/49)%len(limits)], Cost: 1 + r.Int64N(3)}
		}
		switch c := &charges[0]; r.IntN(60) {
		case 0:
			c.Cost = 0
		case 1:
			if loses {
				c.Cost = store.Reset
			}
		case 2:
			c.Owed = true
		case 3:
			time.Sleep(time.Duration(r.IntN(int(time.Second))))
		case 4, 5, 6, 7, 8:
			time.Sleep(time.Duration(r.IntN(int(10 * time.Millisecond))))
		case 9:
			c.Cost = 1 << 40 // is refused, and what was paid for the other is put back
		}
		ok, err := s.Take(t.Context(), charges, make([]store.State, len(charges)))
		if err != nil {
			t.Error(err)
		}
		for _, c := range charges {
			if ok && c.Cost > 0 {
				used.Add(c.Cost)
			}
		}
	}
	check := func() (l store.LeaseStats) {
		t.Helper()
		l = *s.Stats().Leases
		if b.got.Load() != l.Returned || b.gave.Load() != used.Load()+l.Returned+l.Held+l.Lost || l.Lost > 0 && !loses {
			t.Fatalf("%+v, %d used; the store gave %d and got %d", l, used.Load(), b.gave.Load(), b.got.Load())
		}
		return l
	}
	calls := testsize.Of(20, 200)
	for round := range 20 {
		var running sync.WaitGroup
		for g := range uint64(4) {
			running.Go(func() {
				for r := rand.New(rand.NewPCG(g, uint64(round))); r.IntN(calls) > 0; s.Stats() {
					call(r)
				}
			})
		}
		if round == 19 {
			running.Go(func() {
				time.Sleep(time.Duration(rand.IntN(int(10 * time.Millisecond))))
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		synctest.Wait()
		check()
	}
	if l := check(); l.Returned == 0 || loses && l.Lost == 0 || l.Drawn < used.Load()/10 || l.Leases != 0 || l.Held != 0 {
		t.Errorf("%+v at rest, of %d used", l, used.Load())
	}
}
