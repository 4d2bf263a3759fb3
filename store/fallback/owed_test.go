package fallback_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// owed returns a charge of what has been used already.
func owed(c store.Charge, cost int64) store.Charge {
	c.Cost, c.Owed = cost, true
	return c
}

// wantMissing checks how many tokens of c's bucket, which gets one in 100 hours, are missing in the primary.
func (d *duo) wantMissing(c store.Charge, want time.Duration) {
	d.t.Helper()
	if missing := d.peekPrimary(c).ResetAfter.Round(time.Hour) / (100 * time.Hour); missing != want {
		d.t.Errorf("%s misses %d in the primary, want %d", c.Key, missing, want)
	}
}

// eachReplicas runs a test with a duo for a single replica, and with one of four.
func eachReplicas(t *testing.T, test func(t *testing.T, d *duo, replicas int64)) {
	for _, replicas := range []int64{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			test(t, newDuo(t, fallback.Config{Replicas: int(replicas)}), replicas)
		})
	}
}

func TestWhatIsOwedWhileThePrimaryIsAwayIsChargedToItWhenItIsBack(t *testing.T) {
	eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 8), Cost: 1}
		d.fail(teststore.Broken)
		ok, state := d.take(owed(c, 25))
		if wait := time.Duration(25*replicas-8) * 100 * time.Hour; !ok || !state.Degraded || state.Remaining != 0 || state.Wait != wait {
			t.Errorf("%d replicas: %t, %+v, want %v until the debt is paid", replicas, ok, state, wait)
		}
		if ok, _ := d.take(c); ok {
			t.Error("allowed in debt")
		}
		if ok, _ := d.take(owed(c, 2)); !ok {
			t.Error("what is owed was refused")
		}
		d.comeBack()
		d.wantMissing(c, 27)

		// And the next outage begins with the debt.
		d.fail(teststore.Broken)
		if ok, _ := d.take(c); ok {
			t.Error("allowed in debt, by the next outage's bucket")
		}
		d.comeBack()
		d.wantMissing(c, 27)
	})
}

// A request takes its estimate, and when it is done gives back a part of it or owes more. The primary is charged for
// what it cost in the end, and until then the stand-in holds the same.
func TestWhatIsSettledWhileThePrimaryIsAwayIsNotChargedToItTwice(t *testing.T) {
	eachReplicas(t, func(t *testing.T, d *duo, replicas int64) {
		c := store.Charge{Policy: "p", Key: "back", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 10}
		more := c
		more.Key = "more"
		d.fail(teststore.Broken)
		for _, c := range []store.Charge{c, more} {
			if ok, state := d.take(c); !ok || state.Remaining != 0 {
				t.Fatalf("%t, %+v", ok, state)
			}
		}
		back := c
		back.Cost = -7
		if _, state := d.take(back); state.Remaining != 7 {
			t.Errorf("%d replicas: %d are left of 10 after 10 and -7", replicas, state.Remaining)
		}
		if _, state := d.take(owed(c, 2)); state.Remaining != 5 {
			t.Errorf("%d replicas: %d are left of 10 after 10, -7 and 2", replicas, state.Remaining)
		}
		d.take(owed(more, 3))
		d.comeBack()
		d.wantMissing(c, 5)
		d.wantMissing(more, 13)
	})
}

// What was given back of a charge from before the outage is spent once here, and not charged to the primary, which
// has been charged for it.
func TestWhatIsGivenBackWhileThePrimaryIsAwayIsNotChargedToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 10}
		d.take(c)
		d.fail(teststore.Broken)
		c.Cost = -7
		d.take(c)
		c.Cost = 1
		if n := d.count(c); n != 7 {
			t.Errorf("%d of the 7 that were given back", n)
		}
		d.comeBack()
		d.wantMissing(c, 10)
	})
}

func TestACallThatOwesAndGivesBackIsOneWhileThePrimaryIsAway(t *testing.T) {
	eachReplicas(t, func(t *testing.T, d *duo, _ int64) {
		l := teststore.Limit(t, 1, 100*time.Hour, 10)
		charges := []store.Charge{{Policy: "p", Key: "a", Limit: l, Cost: 2}, {Policy: "p", Key: "b", Limit: l, Cost: 2}}
		states := make([]store.State, 3)
		d.fail(teststore.Broken)
		if ok, err := d.Take(t.Context(), charges, states); !ok || err != nil {
			t.Fatal(ok, err)
		}
		charges[0].Cost, charges[1] = -1, owed(charges[1], 30)
		if ok, err := d.Take(t.Context(), charges, states); !ok || err != nil {
			t.Fatal(ok, err)
		}
		refused := store.Charge{Policy: "p", Key: "c", Limit: l, Cost: 11}
		if ok, err := d.Take(t.Context(), append(charges, refused), states); ok || err != nil {
			t.Fatal(ok, err)
		}
		d.comeBack()
		d.wantMissing(charges[0], 1)
		d.wantMissing(charges[1], 32)
	})
}

// A share has room for one request's cost, so that its size changes with that. What was spent does not.
func TestWhatWasSpentRemainsSoWhenTheNextCostsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{Replicas: 4})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 10), Cost: 10}
		d.fail(teststore.Broken)
		d.take(c)
		time.Sleep(4 * time.Second) // in which one token comes
		c.Cost = 1
		if n := d.count(c); n != 1 {
			t.Fatalf("%d, want 1", n)
		}
		d.comeBack()
		if missing := d.peekPrimary(c).ResetAfter; missing < 9*time.Second || missing > 10*time.Second {
			t.Errorf("the primary is full after %v, want about 10s", missing)
		}
	})
}

func TestWhatIsOwedIsChargedOnceThoughTheReplyIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 1}
		d.primary.Have(teststore.LostReply)
		if ok, state := d.take(owed(c, 13)); !ok || !state.Degraded {
			t.Errorf("%t, %+v", ok, state)
		}
		d.fail(teststore.Broken)
		d.comeBack()
		d.wantMissing(c, 13)
	})
}
