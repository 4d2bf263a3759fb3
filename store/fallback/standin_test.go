package fallback_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func TestAReplicaHasItsShareWhileThePrimaryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{Replicas: 4})
		d.fail(teststore.Broken)
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 20, time.Second, 40), Cost: 1}
		if n := d.count(c); n != 10 {
			t.Errorf("%d at once, want a quarter of 40", n)
		}
		time.Sleep(2 * time.Second)
		if n := d.count(c); n != 10 {
			t.Errorf("%d after 2 s, want a quarter of 20 a second", n)
		}
		_, state := d.take(c)
		if want := (store.State{RetryAfter: 200 * time.Millisecond, ResetAfter: 2 * time.Second, Degraded: true}); state != want {
			t.Errorf("%+v, want %+v", state, want)
		}

		// One request's cost is always possible.
		c = store.Charge{Policy: "p", Key: "large", Limit: c.Limit, Cost: 40}
		if n := d.count(c); n != 1 {
			t.Errorf("%d of the whole burst, want 1", n)
		}
		c.Cost = 41
		if _, state := d.take(c); state.RetryAfter != store.Never {
			t.Errorf("more than the burst: %+v", state)
		}
		c = store.Charge{Policy: "p", Key: "one", Limit: teststore.Limit(t, 1, time.Minute, 1), Cost: 1}
		if n := d.count(c); n != 1 {
			t.Errorf("%d of a burst of 1, want 1", n)
		}
	})
}

func TestAFailedCallIsAnsweredByAShare(t *testing.T) {
	d := newDuo(t, fallback.Config{Replicas: 4})
	d.primary.Have(teststore.Broken)
	if _, state := d.take(store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 40), Cost: 1}); state.Remaining != 9 {
		t.Errorf("%+v, want 9 of a quarter of 40 left", state)
	}
}

func TestACallsChargesAreNotWrittenTo(t *testing.T) {
	for _, replicas := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			d := newDuo(t, fallback.Config{Replicas: replicas})
			d.primary.Have(teststore.Broken)
			for range 10 { // before the primary is given up, and after
				want := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: -3}
				charges := []store.Charge{want}
				if ok, err := d.Take(t.Context(), charges, make([]store.State, 1)); !ok || err != nil || charges[0] != want {
					t.Fatalf("%t, %v, %+v", ok, err, charges[0])
				}
			}
		})
	}
}
