package fallback_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// before is a Store that does something before each call of one key.
type before struct {
	store.Store
	key string
	do  func(c store.Charge)
}

func (s before) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for _, c := range charges {
		if c.Key == s.key {
			s.do(c)
		}
	}
	return s.Store.Take(ctx, charges, states)
}

func TestACallerWhoLeavesDoesNotKeepABucketFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 8), Cost: 8}
		d.take(c)
		d.fail(teststore.Broken)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if ok, err := d.Take(gone, []store.Charge{c}, make([]store.State, 1)); ok || err == nil {
			t.Errorf("%t, %v", ok, err)
		}
		c.Cost = 1
		if n := d.count(c); n != 0 {
			t.Errorf("%d of an empty bucket", n)
		}
	})
}

// A call that failed before the primary was given up is answered by the secondary at any time.
func TestABucketIsSpentAlthoughOthersChargeItMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New(memstore.Config{})
		defer memory.Close()
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 8), Cost: 8}
		var once sync.Once
		d := newDuoWith(t, before{memory, "k", func(asked store.Charge) {
			if asked.Cost != 0 {
				once.Do(func() {
					other := c
					other.Cost = 1
					_, _ = memory.Take(t.Context(), []store.Charge{other}, make([]store.State, 1))
				})
			}
		}}, fallback.Config{})
		d.take(c)
		d.fail(teststore.Broken)
		c.Cost = 1
		if n := d.count(c); n != 0 {
			t.Errorf("%d of an empty bucket", n)
		}
	})
}

func TestABucketInDebtIsInDebtWhileThePrimaryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, replicas := range []int{1, 3} {
			d := newDuo(t, fallback.Config{Replicas: replicas})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 6), Cost: 6, MaxWait: math.MaxInt64}
			for range 6 {
				d.take(c) // 30 of which are still to come
			}
			d.fail(teststore.Broken)
			c.Cost, c.MaxWait = 1, 0
			want := 30*time.Second + time.Duration(replicas)*time.Second
			if ok, state := d.take(c); ok || state.RetryAfter != want {
				t.Errorf("%d replicas: %t, %+v, want a token after %v", replicas, ok, state, want)
			}
			d.comeBack()
		}
	})
}

// The primary may be a fallback, too.
func TestWhatAStandInSaysIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newDuo(t, fallback.Config{Replicas: 4})
		inner.fail(teststore.Broken)
		d := newDuo(t, fallback.Config{})
		d.primary.Store = inner
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 8), Cost: 1}
		d.count(c)
		d.fail(teststore.Broken)
		if n := d.count(c); n != 8 {
			t.Errorf("%d, want 8, as the real store was never asked", n)
		}
	})
}

// The part that was spent carries over to another limit, as well as it is known.
func TestWhatIsKnownOfABucketCarriesOverToAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		slow := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 6), Cost: 2}
		fast := slow
		fast.Limit = teststore.Limit(t, 3, time.Second, 6)
		if slow.Limit.Unit != fast.Limit.Unit || slow.Limit.Capacity != fast.Limit.Capacity {
			t.Fatal("not what this test is for")
		}
		d.take(slow) // 4 of 6 left, full in 2 s: at three a second that would be none
		d.fail(teststore.Broken)
		fast.Cost = 1
		if n := d.count(fast); n < 3 || n > 4 {
			t.Errorf("%d, want the 4 that were left, or a little less", n)
		}
	})
}

func TestASpentBucketIsNotFullInAnOutageBecauseItsLimitHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for debt := range int64(2) {
			d := newDuo(t, fallback.Config{})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 10, time.Second, 10), Cost: 10}
			d.take(c)
			if debt > 0 {
				c.Cost, c.Owed = 10*debt, true
				d.take(c)
			}
			d.fail(teststore.Broken)
			c.Limit, c.Cost, c.Owed = teststore.Limit(t, 1000, time.Hour, 1000), 1, false
			ok, state := d.take(c)
			if least := time.Duration(debt) * time.Hour; ok || state.RetryAfter <= least || state.ResetAfter <= least+50*time.Minute {
				t.Errorf("%t, %+v after a debt of %d", ok, state, 10*debt)
			}
			d.comeBack()
		}
	})
}
