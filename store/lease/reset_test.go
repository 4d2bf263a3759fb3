package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// A gate is a Store whose next call, once it is set, is carried out and then held until it is opened.
type gate struct {
	store.Store
	next func(charges []store.Charge) bool // whether to hold this one
	open chan struct{}
	err  error // of the call that was held
}

func (g *gate) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := g.Store.Take(ctx, charges, states)
	if g.next != nil && g.next(charges) {
		g.next = nil
		<-g.open
		if g.err != nil {
			return false, g.err
		}
	}
	return ok, err
}

func (g *gate) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	return store.SetBlock(ctx, g.Store, policy, key, b)
}

// hold has the next call of key's bucket that costs something held, once it was carried out.
func (g *gate) hold(key string) {
	g.open = make(chan struct{})
	g.next = func(charges []store.Charge) bool { return charges[0].Key == key && charges[0].Cost > 0 }
}

// count makes calls of c until one is refused, and returns how many were allowed.
func count(t *testing.T, s store.Store, c store.Charge) (n int) {
	t.Helper()
	for {
		ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return n
		}
		n++
	}
}

func TestAResetReachesALease(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, s *lease.Store, g *gate, c store.Charge){
		"tokens that are held": func(t *testing.T, s *lease.Store, _ *gate, c store.Charge) {
			teststore.Must(t, s, teststore.ResetOf(t, c))
		},
		"tokens that are being drawn": func(t *testing.T, s *lease.Store, g *gate, c store.Charge) {
			c.Cost = 20 // more than is held
			g.hold(c.Key)
			done := make(chan struct{})
			go func() {
				defer close(done)
				teststore.Must(t, s, c)
			}()
			synctest.Wait()
			teststore.Must(t, s, teststore.ResetOf(t, c))
			close(g.open)
			<-done
		},
		"tokens that were paid for a call that fails": func(t *testing.T, s *lease.Store, g *gate, c store.Charge) {
			other := c
			other.Key, other.Cost = "other", 3
			g.err = teststore.ErrBroken
			g.hold(other.Key)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, err := s.Take(t.Context(), []store.Charge{c, other}, make([]store.State, 2)); !errors.Is(err, teststore.ErrBroken) {
					t.Error(err)
				}
			}()
			synctest.Wait()
			teststore.Must(t, s, teststore.ResetOf(t, c))
			teststore.Must(t, g.Store, store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: 5}) // there is room for a refund
			close(g.open)
			<-done
			if left := teststore.Must(t, g.Store, store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit})[0].Remaining; left != 595 {
				t.Errorf("%d left, want 595", left)
			}
			teststore.Must(t, g.Store, store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: -5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{Store: teststore.OpenMemory(t, nil)}
				s := openLease(t, g, lease.Config{Hold: time.Hour})
				c := teststore.Months(t, 1)
				for range 20 {
					teststore.Must(t, s, c)
				}
				test(t, s, g, c)
				if n := count(t, s, c); n != 600 {
					t.Errorf("%d allowed after the reset, want 600", n)
				}
			})
		})
	}
}

// Tokens that are drawn before a reset is carried out would be spent besides a full bucket.
func TestNothingIsDrawnDuringAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := &teststore.Intercepted{Store: teststore.OpenMemory(t, nil)}
		s := openLease(t, behind, lease.Config{Hold: time.Hour})
		c := teststore.Months(t, 1)
		for range 20 {
			teststore.Must(t, s, c)
		}
		open, done := make(chan struct{}), make(chan struct{})
		behind.Intercept(func(c store.Charge) error {
			if c.Cost == store.Reset {
				<-open
			}
			return nil
		})
		go func() {
			defer close(done)
			teststore.Must(t, s, teststore.ResetOf(t, c))
		}()
		synctest.Wait()
		for range 20 {
			teststore.Must(t, s, c)
		}
		if held := s.Stats().Leases.Held; held != 0 {
			t.Errorf("%d held", held)
		}
		close(open)
		<-done
		if n := count(t, s, c); n != 600 {
			t.Errorf("%d allowed after the reset, want 600", n)
		}
	})
}

// What goes back after the bucket was reset, because its turn came late, is dropped.
func TestAResetReachesWhatIsOnItsWayBackFromALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := teststore.OpenMemory(t, nil)
		behind := &teststore.Intercepted{Store: memory}
		s := openLease(t, behind, lease.Config{})
		const keys = 40 // more than are given back to at once
		all := make([]store.Charge, keys)
		for i := range all {
			all[i] = teststore.Months(t, 1)
			all[i].Key = string(rune('A' + i))
			for range 20 {
				teststore.Must(t, s, all[i])
			}
		}
		open := make(chan struct{})
		behind.Intercept(func(c store.Charge) error {
			if c.Cost < 0 && c.Cost != store.Reset {
				<-open
			}
			return nil
		})
		time.Sleep(600 * time.Millisecond) // so that they are collected
		synctest.Wait()
		for _, c := range all {
			teststore.Must(t, s, teststore.ResetOf(t, c))
			teststore.Must(t, memory, store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: 100})
		}
		close(open)
		synctest.Wait()
		late := 0
		for _, c := range all {
			if n := count(t, memory, c); n > 500 {
				late++
			}
		}
		if late > 16 { // those that had been sent
			t.Errorf("%d buckets were given back to after a reset, want at most 16", late)
		}
	})
}

// A peek or a Reset under another limit does not cut the bucket that a lease gives back to.
func TestALeaseGivesBackByTheLimitOfTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openLease(t, teststore.OpenMemory(t, nil), lease.Config{Hold: time.Hour})
		c := teststore.Months(t, 1)
		for range 20 {
			teststore.Must(t, s, c)
		}
		other := c
		other.Limit, other.Cost = teststore.Limit(t, 1, time.Second, 10), 0
		teststore.Must(t, s, other)
		if b, err := s.Inspect(t.Context(), c.Policy, c.Key); err != nil || b.Limit != c.Limit || b.State(c.Limit).Remaining != 580 {
			t.Errorf("%+v, %v, want 580 left", b, err)
		}
	})
}
