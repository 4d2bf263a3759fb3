package lease_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// What a lease gives back puts the bucket under the limit of the last call, and not under that of the tokens.
func TestALeaseGivesBackUnderTheLimitInForce(t *testing.T) {
	under := func(c store.Charge, l store.Limit) store.Charge {
		c.Limit, c.Cost = l, 1
		return c
	}
	for name, test := range map[string]func(t *testing.T, s *lease.Store, g *gate, c store.Charge, other store.Limit){
		"tokens that are held, when the limit changes": func(t *testing.T, s *lease.Store, _ *gate, c store.Charge, other store.Limit) {
			teststore.Must(t, s, under(c, other))
		},
		"tokens that are held, by Close": func(t *testing.T, s *lease.Store, _ *gate, c store.Charge, other store.Limit) {
			teststore.Must(t, s, under(c, other))
			for range 20 {
				teststore.Must(t, s, under(c, other))
			}
			teststore.Must(t, s, c)
			teststore.Must(t, s, under(c, other))
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		},
		"tokens that are being drawn": func(t *testing.T, s *lease.Store, g *gate, c store.Charge, other store.Limit) {
			draw := c
			draw.Cost = 20 // more than is held
			g.hold(c.Key)
			done := make(chan struct{})
			go func() {
				defer close(done)
				teststore.Must(t, s, draw)
			}()
			synctest.Wait()
			teststore.Must(t, s, under(c, other))
			close(g.open)
			<-done
		},
		"tokens that are drawn for the first time": func(t *testing.T, s *lease.Store, g *gate, c store.Charge, other store.Limit) {
			teststore.Must(t, s, teststore.ResetOf(t, c))
			time.Sleep(3 * time.Hour) // until nothing is known of the bucket
			synctest.Wait()
			teststore.Must(t, s, c)
			g.hold(c.Key)
			done := make(chan struct{})
			go func() {
				defer close(done)
				teststore.Must(t, s, c)
			}()
			synctest.Wait()
			teststore.Must(t, s, under(c, other))
			close(g.open)
			<-done
		},
		"tokens that were paid for a call that fails": func(t *testing.T, s *lease.Store, g *gate, c store.Charge, other store.Limit) {
			second := c
			second.Key, second.Cost = "other", 3
			g.err = teststore.ErrBroken
			g.hold(second.Key)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, err := s.Take(t.Context(), []store.Charge{c, second}, make([]store.State, 2)); !errors.Is(err, teststore.ErrBroken) {
					t.Error(err)
				}
			}()
			synctest.Wait()
			teststore.Must(t, s, under(c, other))
			close(g.open)
			<-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := teststore.OpenMemory(t, nil)
				g := &gate{Store: memory}
				s := openLease(t, g, lease.Config{Hold: time.Hour})
				c, other := teststore.Months(t, 1), teststore.Limit(t, 1, time.Hour, 10_000)
				for range 20 {
					teststore.Must(t, s, c)
				}
				test(t, s, g, c, other)
				time.Sleep(2 * time.Hour) // until all that is held was collected
				synctest.Wait()
				if b, err := store.Inspect(t.Context(), memory, c.Policy, c.Key); err != nil || b.Limit != other || b.State(other).Remaining > 600 {
					t.Errorf("%+v, %v, want it under %+v", b, err, other)
				}
			})
		})
	}
}

// What goes back after the limit has changed, because its turn came late, is dropped.
func TestAChangedLimitReachesWhatIsOnItsWayBackFromALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := teststore.OpenMemory(t, nil)
		behind := &teststore.Intercepted{Store: memory}
		s := openLease(t, behind, lease.Config{})
		const keys = 40 // more than are given back to at once
		all, other := make([]store.Charge, keys), teststore.Limit(t, 1, time.Hour, 10_000)
		for i := range all {
			all[i] = teststore.Months(t, 1)
			all[i].Key = string(rune('A' + i))
			for range 20 {
				teststore.Must(t, s, all[i])
			}
		}
		open := make(chan struct{})
		behind.Intercept(func(c store.Charge) error {
			if c.Cost < 0 {
				<-open
			}
			return nil
		})
		time.Sleep(600 * time.Millisecond) // so that they are collected
		synctest.Wait()
		for _, c := range all {
			c.Limit = other
			teststore.Must(t, s, c)
		}
		close(open)
		synctest.Wait()
		old, lost := 0, 0
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
		if old > 16 || lost != keys-old { // all but those that had been sent
			t.Errorf("%d buckets are under the old limit again, want at most 16, and %d lack tokens, want the others", old, lost)
		}
	})
}

// However limits change, a lease admits nothing that the store would not, and gives back no more than it took. They are
// of one rate: for what is paid from a lease the store does not know when the rate changed.
func TestALeaseMakesNoTokensWhenLimitsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rand := rand.New(rand.NewPCG(12, 0))
		limits := []store.Limit{
			teststore.Limit(t, 10, time.Second, 100), teststore.Limit(t, 10, time.Second, 1000), teststore.Limit(t, 10, time.Second, 300),
			teststore.Limit(t, 10, time.Second, 20), teststore.Limit(t, 10, time.Second, 50),
		}
		plain, paid := teststore.OpenMemory(t, nil), 0
		behind := &teststore.Counted{Store: teststore.OpenMemory(t, nil)}
		s := openLease(t, behind, lease.Config{Fraction: 0.5})
		c := store.Charge{Policy: "p", Key: "k", Limit: limits[0]}
		for i := range 20_000 {
			switch rand.IntN(40) {
			case 0:
				c.Limit = limits[rand.IntN(len(limits))]
			case 1:
				time.Sleep(time.Duration(rand.Int64N(int64(5 * time.Second))))
			case 2, 3, 4:
				time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
			}
			synctest.Wait()
			c.Cost = 1 + rand.Int64N(2)
			if rand.IntN(50) == 0 {
				c.Cost = 0
			}
			calls := behind.Calls.Load()
			states, would := make([]store.State, 1), make([]store.State, 1)
			ok, err := s.Take(t.Context(), []store.Charge{c}, states)
			if err != nil {
				t.Fatal(err)
			}
			if calls == behind.Calls.Load() {
				paid++
			}
			same := c
			if !ok {
				same.Cost = 1 << 40 // refused, too, so that the bucket is under the same limit
			}
			if allowed, err := plain.Take(t.Context(), []store.Charge{same}, would); allowed != ok || err != nil {
				t.Fatalf("call %d of %+v is allowed, and not by the store: %+v, %v", i, c, would, err)
			}
			if c.Cost == 0 && states[0].Remaining > would[0].Remaining {
				t.Fatalf("call %d: %+v, and in the store %+v", i, states, would)
			}
		}
		if paid < 500 {
			t.Errorf("only %d calls were paid without the store", paid)
		}
	})
}

// Tokens that are held lose their worth when the bucket is full without them, also where the limit has changed since.
func TestALeaseGivesBackNoMoreThanTheBucketLackedUnderEitherLimit(t *testing.T) {
	for name, other := range map[string]store.Limit{
		"a larger burst": teststore.Limit(t, 10, time.Second, 1000),
		"a slower rate":  teststore.Limit(t, 1, time.Hour, 1000),
		"a lower burst":  teststore.Limit(t, 1, time.Hour, 15),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := teststore.OpenMemory(t, nil)
				s := openLease(t, memory, lease.Config{Fraction: 1, Hold: time.Minute})
				c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 10, time.Second, 20), Cost: 1}
				for range 5 {
					teststore.Must(t, s, c)
				}
				time.Sleep(2 * time.Second)  // until it is full
				teststore.Must(t, memory, c) // by another replica
				left := teststore.Must(t, memory, store.Charge{Policy: c.Policy, Key: c.Key, Limit: other})[0].Remaining
				c.Limit = other
				if got := teststore.Must(t, s, c)[0].Remaining; got != left-1 {
					t.Errorf("%d left after 1 of %d", got, left)
				}
			})
		})
	}
}
