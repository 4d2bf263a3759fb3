package decorators_test

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Slots are taken together with tokens that may be leased, denied from memory or settled. They go back where they came from,
// and none is held twice or left.
func TestSlotsOnStacksInAnOutage(t *testing.T) {
	onStacks(t, func(t *testing.T, s store.Store, primary *teststore.Faulty) {
		limit, err := store.NewConcurrency(3)
		if err != nil {
			t.Fatal(err)
		}
		slot := store.Charge{Policy: "slots", Key: "k", Limit: limit, Cost: 1}
		token := store.Charge{Policy: "tokens", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 1000), Cost: 1}
		take := func(charges ...store.Charge) (bool, store.State) {
			t.Helper()
			states := make([]store.State, len(charges))
			ok, err := s.Take(t.Context(), charges, states)
			if err != nil {
				t.Fatal(err)
			}
			return ok, states[0]
		}
		release := func(degraded bool) {
			t.Helper()
			c := slot
			c.Cost, c.Standby = -1, degraded
			if ok, state := take(c); !ok || state.Lost || state.Degraded != degraded {
				t.Errorf("a release: %t, %+v, want it degraded: %t", ok, state, degraded)
			}
		}
		for range 10 {
			take(token) // which may be leased
			if ok, _ := take(slot, token); !ok {
				t.Fatal("a slot is denied that is free")
			}
			release(false)
		}
		for range 3 {
			take(slot)
		}
		for range 3 { // of which no denial is remembered
			if ok, state := take(slot); ok || state.RetryAfter != time.Second {
				t.Fatalf("a fourth slot: %t, %+v", ok, state)
			}
		}
		release(false)
		if ok, _ := take(slot, token); !ok {
			t.Fatal("a slot is denied that was released")
		}

		primary.Have(teststore.Broken)
		taken := 0
		for range 20 {
			if ok, state := take(slot, token); ok && state.Degraded {
				taken++
			}
		}
		if taken != 3 {
			t.Errorf("the stand-in has granted %d slots, want 3", taken)
		}
		for range 3 {
			release(false)
		}
		release(true)
		primary.Mend()
		time.Sleep(2 * time.Second)
		for i := range 4 {
			if ok, state := take(slot, token); ok != (i < 3) || state.Degraded {
				t.Errorf("slot %d after the outage: %t, %+v", i, ok, state)
			}
		}
		for range 3 {
			release(false)
		}
		release(true)
		release(true)
		if held := store.StatsOf(s).Slots.Held; len(held) > 0 {
			t.Errorf("%v are held in the end", held)
		}
	})
}
