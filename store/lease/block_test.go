package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// block blocks c's bucket for d, or unblocks it if d is 0.
func block(t *testing.T, s store.Store, c store.Charge, d time.Duration) {
	t.Helper()
	if degraded, err := store.SetBlock(t.Context(), s, c.Policy, c.Key, store.Block{For: d}); degraded || err != nil {
		t.Fatal(degraded, err)
	}
}

func left(t *testing.T, s store.Store, c store.Charge) int64 {
	t.Helper()
	return teststore.Must(t, s, store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit})[0].Remaining
}

func TestABlockReachesALease(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, s *lease.Store, g *gate, c store.Charge) (allowed, lost int64){
		"tokens that are held": func(t *testing.T, s *lease.Store, _ *gate, c store.Charge) (allowed, lost int64) {
			if s.Stats().Leases.Held == 0 {
				t.Fatal("nothing is held")
			}
			block(t, s, c, time.Hour)
			return 0, 0
		},
		"tokens that are being drawn": func(t *testing.T, s *lease.Store, g *gate, c store.Charge) (allowed, lost int64) {
			c.Cost = s.Stats().Leases.Held + 1
			g.hold(c.Key)
			done := make(chan struct{})
			go func() {
				defer close(done)
				teststore.Must(t, s, c)
			}()
			synctest.Wait()
			block(t, s, c, time.Hour)
			close(g.open)
			<-done
			if lost = s.Stats().Leases.Lost; lost == 0 {
				t.Error("nothing was drawn")
			}
			return c.Cost, lost
		},
		"tokens that were paid for a call that fails": func(t *testing.T, s *lease.Store, g *gate, c store.Charge) (allowed, lost int64) {
			other := c
			other.Key, other.Cost, c.Cost = "other", 3, s.Stats().Leases.Held
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
			if s.Stats().Leases.Held != 0 {
				t.Fatal("not all was paid")
			}
			block(t, s, c, time.Hour)
			close(g.open)
			<-done
			if lost = s.Stats().Leases.Lost; lost != c.Cost {
				t.Errorf("%d are lost, want the %d that were paid", lost, c.Cost)
			}
			return 0, lost
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{Store: teststore.OpenMemory(t, nil)}
				s := openLease(t, g, lease.Config{Hold: 2 * time.Hour})
				c := teststore.Months(t, 1)
				for range 20 {
					teststore.Must(t, s, c)
				}
				allowed, lost := test(t, s, g, c)
				if n := count(t, s, c); n != 0 {
					t.Errorf("%d allowed by a blocked bucket", n)
				}
				if s.Stats().Leases.Held != 0 {
					t.Error("tokens of a blocked bucket are held")
				}
				block(t, s, c, 0)
				if n := left(t, s, c); n != 580-allowed-lost {
					t.Errorf("%d left, want %d", n, 580-allowed-lost)
				}
				if n := int64(count(t, s, c)); n != 580-allowed-lost {
					t.Errorf("%d allowed after Unblock, want %d", n, 580-allowed-lost)
				}
			})
		})
	}
}

// A charge that may lock is never paid here, and finds the whole bucket in the store.
func TestChargesThatLockAreNotLeased(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		s := r.Store.(*lease.Store)
		c := teststore.Months(t, 1)
		for range 20 {
			r.Take(c)
		}
		held := s.Stats().Leases.Held
		c.Lock = time.Hour
		if state := r.Asks(c); state.Remaining != 579 || held == 0 {
			t.Errorf("%+v, %d were held", state, held)
		}
		for range 20 {
			r.Asks(c)
		}
		c.Cost = 559
		if state := r.Asks(c); !state.Allowed || !state.Blocked || state.RetryAfter != time.Hour {
			t.Errorf("%+v", state)
		}
		if n := s.Stats().Leases.Held; n != 0 {
			t.Errorf("%d held", n)
		}
	})
}

// Tokens that were drawn before a charge that locks are not spent during the lock.
func TestALockReachesTokensThatAreBeingDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Store: teststore.OpenMemory(t, nil)}
		s := openLease(t, g, lease.Config{Hold: 2 * time.Hour})
		c := teststore.Months(t, 1)
		teststore.Must(t, s, c)
		g.hold(c.Key)
		done := make(chan struct{})
		go func() {
			defer close(done)
			teststore.Must(t, s, c) // takes 2
		}()
		synctest.Wait()
		locking := c
		locking.Cost, locking.Lock = 597, time.Hour
		teststore.Must(t, s, locking)
		close(g.open)
		<-done
		if n := count(t, s, c); n != 0 || s.Stats().Leases.Lost != 1 {
			t.Errorf("%d allowed during the lock, %d lost", n, s.Stats().Leases.Lost)
		}
	})
}

// A call that panics loses what it draws, and no other call has to pass through for it.
func TestAStoreThatPanicsKeepsNoBucket(t *testing.T) {
	leaseTest(t, lease.Config{}, func(t *testing.T, r *leaseRig) {
		c := hot(t, "k")
		for range 5 {
			r.Take(c)
		}
		held := r.Store.(*lease.Store).Stats().Leases.Held
		behind := r.Behind.Store
		r.Behind.Store = &teststore.Answering{Wait: func() { panic("away") }}
		for _, cost := range []int64{held + 1, 1, 1} {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				c.Cost = cost
				r.Take(c)
			}()
		}
		r.Behind.Store = behind
		c.Cost = 1
		r.Asks(c) // and takes 2
		r.pays(c)
	})
}

// Another replica may spend what it holds, for up to Hold.
func TestABlockElsewhereReachesALeaseWithinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := teststore.OpenMemory(t, nil)
		s, other := openLease(t, memory, lease.Config{}), openLease(t, memory, lease.Config{})
		c := teststore.Months(t, 1)
		for range 20 {
			teststore.Must(t, s, c)
		}
		block(t, other, c, time.Hour)
		held := s.Stats().Leases.Held
		if n := int64(count(t, s, c)); n != held || held == 0 {
			t.Errorf("%d allowed of %d that were held", n, held)
		}
		block(t, other, c, 0)
		for range 20 {
			teststore.Must(t, s, c)
		}
		block(t, other, c, time.Hour)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if n := count(t, s, c); n != 0 {
			t.Errorf("%d allowed after Hold", n)
		}
		// What went back under the block is there after it.
		block(t, other, c, 0)
		if n := left(t, memory, c); n != 560-held {
			t.Errorf("%d left, want %d", n, 560-held)
		}
	})
}
