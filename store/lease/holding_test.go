package lease_test

import (
	"context"
	"errors"
	"maps"
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

// during makes a call that is held once the store has carried it out, does something meanwhile, and lets the call go on.
// The call ends with err. The last of charges is one that the store is asked for.
func (g *gate) during(t *testing.T, s store.Store, err error, charges []store.Charge, do func()) {
	t.Helper()
	key := charges[len(charges)-1].Key
	g.err, g.open = err, make(chan struct{})
	g.next = func(asked []store.Charge) bool { return asked[0].Key == key && asked[0].Cost > 0 }
	done := make(chan struct{})
	go func() {
		defer close(done)
		if ok, got := s.Take(t.Context(), charges, make([]store.State, len(charges))); ok != (err == nil) || !errors.Is(got, err) {
			t.Error(ok, got)
		}
	}()
	synctest.Wait()
	do()
	close(g.open)
	<-done
}

// takes makes n calls of c that must be allowed.
func takes(t *testing.T, s store.Store, n int, c store.Charge) {
	t.Helper()
	for range n {
		teststore.TakeAllowed(t, s, c)
	}
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

// block blocks c's bucket for d, or unblocks it if d is 0.
func block(t *testing.T, s store.Store, c store.Charge, d time.Duration) {
	t.Helper()
	if degraded, err := store.SetBlock(t.Context(), s, c.Policy, c.Key, store.Block{For: d}); degraded || err != nil {
		t.Fatal(degraded, err)
	}
}

func left(t *testing.T, s store.Store, c store.Charge) int64 {
	t.Helper()
	return teststore.TakeAllowed(t, s, store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit})[0].Remaining
}

// A way is where the tokens of c's bucket are while a test does something. It returns how many of them a call has spent, and how
// many are lost if they are not to be spent after that.
type way func(t *testing.T, s *lease.Store, g *gate, c store.Charge, do func()) (spent, lost int64)

var ways = map[string]way{
	"held": func(t *testing.T, s *lease.Store, _ *gate, c store.Charge, do func()) (spent, lost int64) {
		do()
		return 0, 0
	},
	"being drawn": func(t *testing.T, s *lease.Store, g *gate, c store.Charge, do func()) (spent, lost int64) {
		c.Cost = s.Stats().Leases.Held + 1
		g.during(t, s, nil, []store.Charge{c}, do)
		return c.Cost, s.Stats().Leases.Lost
	},
	"paid for a call that fails": func(t *testing.T, s *lease.Store, g *gate, c store.Charge, do func()) (spent, lost int64) {
		other := c
		other.Key, other.Cost, c.Cost = "other", 3, s.Stats().Leases.Held
		g.during(t, s, teststore.ErrBroken, []store.Charge{c, other}, do)
		return 0, c.Cost
	},
}

// everyWay runs a test for each of ways. 20 of 600 tokens are spent, and others are held.
func everyWay(t *testing.T, ways map[string]way, test func(t *testing.T, s *lease.Store, g *gate, c store.Charge, w way)) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{Store: teststore.OpenMemory(t, nil)}
				s, c := openLease(t, g, lease.Config{Hold: 2 * time.Hour}), teststore.Months(t, 1)
				if takes(t, s, 20, c); s.Stats().Leases.Held == 0 {
					t.Fatal("nothing is held")
				}
				test(t, s, g, c, w)
			})
		})
	}
}

func TestAResetReachesALease(t *testing.T) {
	everyWay(t, ways, func(t *testing.T, s *lease.Store, g *gate, c store.Charge, w way) {
		w(t, s, g, c, func() {
			teststore.TakeAllowed(t, s, teststore.ResetOf(t, c))
			takes(t, g.Store, 5, c) // there is room for a refund
		})
		if n := count(t, s, c); n != 595 {
			t.Errorf("%d allowed after the reset and 5 of 600, want 595", n)
		}
	})
}

func TestABlockReachesALease(t *testing.T) {
	everyWay(t, ways, func(t *testing.T, s *lease.Store, g *gate, c store.Charge, w way) {
		spent, lost := w(t, s, g, c, func() { block(t, s, c, time.Hour) })
		if stats := *s.Stats().Leases; stats.Held != 0 || stats.Lost != lost || stats.Returned == 0 && lost == 0 {
			t.Errorf("%+v of a blocked bucket, want %d lost", stats, lost)
		}
		if n := count(t, s, c); n != 0 {
			t.Errorf("%d allowed by a blocked bucket", n)
		}
		block(t, s, c, 0)
		if want, l, n := 580-spent-lost, left(t, s, c), int64(count(t, s, c)); l != want || n != want {
			t.Errorf("%d left and %d allowed after Unblock, want %d", l, n, want)
		}
	})
}

func TestCloseReachesALease(t *testing.T) {
	everyWay(t, ways, func(t *testing.T, s *lease.Store, g *gate, c store.Charge, w way) {
		spent, _ := w(t, s, g, c, func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if stats, n := *s.Stats().Leases, left(t, g.Store, c); stats.Held != 0 || stats.Lost != 0 || n != 580-spent {
			t.Errorf("%+v, and %d left in the store, want all of the %d", stats, n, 580-spent)
		}
	})
}

// What a lease gives back puts the bucket under the limit of the last call, and not under that of the tokens.
func TestALeaseGivesBackUnderTheLimitInForce(t *testing.T) {
	all := maps.Clone(ways)
	all["held by Close"] = func(t *testing.T, s *lease.Store, _ *gate, c store.Charge, do func()) (spent, lost int64) {
		for range 20 {
			do()
		}
		teststore.TakeAllowed(t, s, c)
		do()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return 0, 0
	}
	all["drawn for the first time"] = func(t *testing.T, s *lease.Store, g *gate, c store.Charge, do func()) (spent, lost int64) {
		teststore.TakeAllowed(t, s, teststore.ResetOf(t, c))
		time.Sleep(6 * time.Hour) // until nothing is known of the bucket
		synctest.Wait()
		teststore.TakeAllowed(t, s, c)
		g.during(t, s, nil, []store.Charge{c}, do)
		return 0, 0
	}
	everyWay(t, all, func(t *testing.T, s *lease.Store, g *gate, c store.Charge, w way) {
		changed := c
		changed.Limit = teststore.Limit(t, 1, time.Hour, 10_000)
		w(t, s, g, c, func() { teststore.TakeAllowed(t, s, changed) })
		time.Sleep(4 * time.Hour) // until all that is held was collected
		synctest.Wait()
		b, err := store.Inspect(t.Context(), g.Store, c.Policy, c.Key)
		if err != nil || b.Limit != changed.Limit || b.State(b.Limit).Remaining > 600 {
			t.Errorf("%+v, %v, want it under %+v", b, err, changed.Limit)
		}
	})
}

// Tokens that were drawn before a charge that locks are not spent during the lock.
func TestALockReachesTokensThatAreBeingDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Store: teststore.OpenMemory(t, nil)}
		s, c := openLease(t, g, lease.Config{Hold: 2 * time.Hour}), teststore.Months(t, 1)
		teststore.TakeAllowed(t, s, c)
		g.during(t, s, nil, []store.Charge{c}, func() { // takes 2
			locking := c
			locking.Cost, locking.Lock = 597, time.Hour
			teststore.TakeAllowed(t, s, locking)
		})
		if n := count(t, s, c); n != 0 || s.Stats().Leases.Lost != 1 {
			t.Errorf("%d allowed during the lock, %d lost", n, s.Stats().Leases.Lost)
		}
	})
}

// Tokens that come back from a call that failed are worth what they were when they were drawn, and not more because others
// were drawn since.
func TestWhatACallPutsBackIsOfItsOwnLot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Store: teststore.OpenMemory(t, nil)}
		s := openLease(t, g, lease.Config{Hold: time.Hour})
		c, all, other := hot(t, "k"), hot(t, "k"), hot(t, "other")
		takes(t, s, 4, c) // of 4, 3 are left
		all.Cost = 3
		g.during(t, s, teststore.ErrBroken, []store.Charge{all, other}, func() {
			time.Sleep(time.Minute) // until the bucket is full
			if teststore.TakeAllowed(t, s, c); s.Stats().Leases.Held == 0 {
				t.Error("nothing was drawn")
			}
		})
		if n := count(t, s, c); n != 99 {
			t.Errorf("%d allowed after 1 of a full bucket of 100", n)
		}
	})
}

// onItsWayBack changes buckets after the lease has begun to give their tokens back. It returns charges of them.
func onItsWayBack(t *testing.T, memory store.Store, change func(s *lease.Store, c store.Charge)) []store.Charge {
	behind := &teststore.Intercepted{Store: memory}
	s := openLease(t, behind, lease.Config{})
	all := make([]store.Charge, 40) // more than are given back to at once
	for i := range all {
		all[i] = teststore.Months(t, 1)
		all[i].Key = string(rune('A' + i))
		takes(t, s, 20, all[i])
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
		change(s, c)
	}
	close(open)
	synctest.Wait()
	return all
}

// What goes back after the bucket was reset, because its turn came late, is dropped.
func TestAResetReachesWhatIsOnItsWayBackFromALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, late := teststore.OpenMemory(t, nil), 0
		for _, c := range onItsWayBack(t, memory, func(s *lease.Store, c store.Charge) {
			teststore.TakeAllowed(t, s, teststore.ResetOf(t, c))
			c.Cost = 100
			teststore.TakeAllowed(t, memory, c)
		}) {
			if left(t, memory, c) > 500 {
				late++
			}
		}
		if late > 16 { // those that had been sent
			t.Errorf("%d buckets were given back to after a reset, want at most 16", late)
		}
	})
}

// So is what goes back after the limit has changed.
func TestAChangedLimitReachesWhatIsOnItsWayBackFromALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, other := teststore.OpenMemory(t, nil), teststore.Limit(t, 1, time.Hour, 10_000)
		old, lost := 0, 0
		all := onItsWayBack(t, memory, func(s *lease.Store, c store.Charge) {
			c.Limit = other
			teststore.TakeAllowed(t, s, c)
		})
		for _, c := range all {
			b, err := store.Inspect(t.Context(), memory, c.Policy, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			if b.Limit != other {
				old++
			}
			if b.State(b.Limit).Remaining < 579 {
				lost++
			}
		}
		if old > 16 || lost != len(all)-old { // all but those that had been sent
			t.Errorf("%d buckets are under the old limit again, want at most 16, and %d lack tokens, want the others", old, lost)
		}
	})
}

// Tokens that are drawn before a reset is carried out would be spent besides a full bucket.
func TestNothingIsDrawnDuringAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := &teststore.Intercepted{Store: teststore.OpenMemory(t, nil)}
		s := openLease(t, behind, lease.Config{Hold: time.Hour})
		c := teststore.Months(t, 1)
		takes(t, s, 20, c)
		open, done := make(chan struct{}), make(chan struct{})
		behind.Intercept(func(c store.Charge) error {
			if c.Cost == store.Reset {
				<-open
			}
			return nil
		})
		go func() {
			defer close(done)
			teststore.TakeAllowed(t, s, teststore.ResetOf(t, c))
		}()
		synctest.Wait()
		takes(t, s, 20, c)
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

// A peek or a Reset under another limit does not cut the bucket that a lease gives back to.
func TestALeaseGivesBackByTheLimitOfTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openLease(t, teststore.OpenMemory(t, nil), lease.Config{Hold: time.Hour})
		c := teststore.Months(t, 1)
		takes(t, s, 20, c)
		other := c
		other.Limit, other.Cost = teststore.Limit(t, 1, time.Second, 10), 0
		teststore.TakeAllowed(t, s, other)
		if b, err := s.Inspect(t.Context(), c.Policy, c.Key); err != nil || b.Limit != c.Limit || b.State(c.Limit).Remaining != 580 {
			t.Errorf("%+v, %v, want 580 left", b, err)
		}
	})
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
		takes(t, s, 20, c)
		block(t, other, c, time.Hour)
		held := s.Stats().Leases.Held
		if n := int64(count(t, s, c)); n != held || held == 0 {
			t.Errorf("%d allowed of %d that were held", n, held)
		}
		block(t, other, c, 0)
		takes(t, s, 20, c)
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
