package lease_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

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
		calls := testsize.Of(5_000, 20_000)
		for i := range calls {
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
		if paid < calls/40 {
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
				takes(t, s, 5, c)
				time.Sleep(2 * time.Second)         // until it is full
				teststore.TakeAllowed(t, memory, c) // by another replica
				left := teststore.TakeAllowed(t, memory, store.Charge{Policy: c.Policy, Key: c.Key, Limit: other})[0].Remaining
				c.Limit = other
				if got := teststore.TakeAllowed(t, s, c)[0].Remaining; got != left-1 {
					t.Errorf("%d left after 1 of %d", got, left)
				}
			})
		})
	}
}
