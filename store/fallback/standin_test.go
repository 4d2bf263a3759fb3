package fallback_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func TestAReplicaHasItsShareWhileThePrimaryIsAway(t *testing.T) {
	inBubble(t, fallback.Config{Replicas: 4}, func(t *testing.T, r *fallbackRig) {
		r.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 20, time.Second, 40), Cost: 1}
		r.wantCount(c, 10) // at once: a quarter of 40
		time.Sleep(2 * time.Second)
		r.wantCount(c, 10) // after 2 s: a quarter of 20 a second
		_, state := r.take(c)
		if want := (store.State{RetryAfter: 200 * time.Millisecond, ResetAfter: 2 * time.Second, Degraded: true}); state != want {
			t.Errorf("%+v, want %+v", state, want)
		}

		// One request's cost is always possible.
		c = store.Charge{Policy: "p", Key: "large", Limit: c.Limit, Cost: 40}
		r.wantCount(c, 1)
		c.Cost = 41
		if _, state := r.take(c); state.RetryAfter != store.Never {
			t.Errorf("more than the burst: %+v", state)
		}
		c = store.Charge{Policy: "p", Key: "one", Limit: teststore.Limit(t, 1, time.Minute, 1), Cost: 1}
		r.wantCount(c, 1)
	})
}

func TestACallsChargesAreNotWrittenTo(t *testing.T) {
	for _, replicas := range []int{1, 4} {
		inBubble(t, fallback.Config{Replicas: replicas}, func(t *testing.T, r *fallbackRig) {
			r.primary.Have(teststore.Broken)
			for range 10 { // before the primary is given up, and after
				want := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: -3}
				charges := []store.Charge{want}
				if ok, err := r.Take(t.Context(), charges, make([]store.State, 1)); !ok || err != nil || charges[0] != want {
					t.Fatalf("%t, %v, %+v", ok, err, charges[0])
				}
			}
		})
	}
}

func TestAResetThatFailsInThePrimaryIsAnError(t *testing.T) {
	for name, f := range map[string]teststore.Fault{"broken": teststore.Broken, "a lost reply": teststore.LostReply, "hung": teststore.Hung} {
		inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
			r.take(teststore.Months(t, 600))
			r.primary.Have(f)
			reset := []store.Charge{teststore.ResetOf(t, teststore.Months(t, 0))}
			ok, err := r.Take(t.Context(), reset, make([]store.State, 1))
			if ok || err == nil || r.Away() != nil {
				t.Errorf("%s: %t, %v, away: %v", name, ok, err, r.Away())
			}
			r.fail(f)
			ok, err = r.Take(store.WithoutStandIn(t.Context()), reset, make([]store.State, 1))
			if ok || !errors.Is(err, store.ErrAway) {
				t.Errorf("%s: %t, %v, want ErrAway", name, ok, err)
			}
		})
	}
}

// A Reset in an outage is one of the secondary. Nothing more is promised.
func TestAResetInAnOutageIsOfTheSecondary(t *testing.T) {
	inBubble(t, fallback.Config{Replicas: 4}, func(t *testing.T, r *fallbackRig) {
		r.take(teststore.Months(t, 600))
		r.fail(teststore.Broken)
		if ok, state := r.take(teststore.ResetOf(t, teststore.Months(t, 0))); !ok || !state.Degraded {
			t.Fatalf("%t, %+v", ok, state)
		}
		r.wantCount(teststore.Months(t, 1), 150) // a quarter of 600
		r.take(teststore.ResetOf(t, teststore.Months(t, 0)))
		r.comeBack()
		r.take(teststore.Months(t, 1))
		r.wantLeft(teststore.Months(t, 0), 0)
	})
}

// The share of a bucket has room for the largest cost, and not now for one and now for another: a bucket that is full
// with less, and forgotten, would be found full with more.
func TestCostsOfSeveralSizesKeepToTheShare(t *testing.T) {
	for _, large := range []int64{25, 40} {
		synctest.Test(t, func(t *testing.T) {
			const rate, burst, replicas = 4, 40, 4
			r := newRig(t, fallback.Config{Replicas: replicas})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, rate, time.Second, burst)}
			r.fail(teststore.Broken)
			gaps := map[int64]time.Duration{large: 10500 * time.Millisecond, 1: 2500 * time.Millisecond}
			begin, admitted := time.Now(), int64(0)
			for time.Since(begin) < 10*time.Minute {
				for _, c.Cost = range []int64{large, 1} {
					if ok, _ := r.take(c); ok {
						admitted += c.Cost
					}
					time.Sleep(gaps[c.Cost]) // the share of the burst refills, then a token, and what is full is forgotten
				}
			}
			most := large + int64(time.Since(begin).Seconds())*rate/replicas
			if admitted > most || admitted < most/4 {
				t.Errorf("costs of %d and 1: %d admitted of a share of %d", large, admitted, most)
			} else {
				t.Logf("costs of %d and 1: %d admitted of a share of %d", large, admitted, most)
			}
		})
	}
}

// ReplicasFunc is called at most ten times a second, and its number counts at once.
func TestReplicasFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		number, calls := 2, 0
		r := newRig(t, fallback.Config{ReplicasFunc: func() int { calls++; return number }})
		r.fail(teststore.Broken)
		c := teststore.Months(t, 1)
		if r.wantCount(c, 300); calls != 1 { // a half of 600
			t.Errorf("%d calls", calls)
		}
		for _, number = range []int{4, -1, 0, 1} {
			time.Sleep(100 * time.Millisecond)
			c.Key += "k"
			if n, want := r.count(c), 600/max(1, number); n != want {
				t.Errorf("%d replicas: %d allowed, want %d", number, n, want)
			}
		}
		if calls != 5 {
			t.Errorf("%d calls, want 5", calls)
		}
	})
}

func TestCallsOfSeveralBucketsFallBackAsAWhole(t *testing.T) {
	inBubble(t, fallback.Config{}, func(t *testing.T, r *fallbackRig) {
		short := store.Charge{Policy: "short", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 2), Cost: 1}
		long := store.Charge{Policy: "long", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: 1}
		shadow := store.Charge{Policy: "shadow", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 1), Cost: 1, Shadow: true}
		r.fail(teststore.Broken)
		states := make([]store.State, 3)
		for i := range 5 {
			if ok, err := r.Take(t.Context(), []store.Charge{short, long, shadow}, states); ok != (i < 2) || err != nil {
				t.Fatal(i, ok, err)
			}
		}
		if _, err := r.Take(t.Context(), []store.Charge{{Policy: "p", Key: "k"}}, states); !errors.Is(err, store.ErrInvalidCall) {
			t.Error(err)
		}
		r.comeBack()
		teststore.TakeAllowed(t, r, long)
		if left := r.peekPrimary(long).Remaining; left != 7 {
			t.Errorf("%d left in the primary, want 7", left)
		}
	})
}
