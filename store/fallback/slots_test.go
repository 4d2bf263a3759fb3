package fallback_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func slot(t testing.TB, n, cost int64) store.Charge {
	t.Helper()
	l, err := store.NewConcurrency(n)
	if err != nil {
		t.Fatal(err)
	}
	return store.Charge{Policy: "slots", Key: "k", Limit: l, Cost: cost}
}

// wantRelease makes a release, and checks where the slot came from, and whether it was lost.
func (r *fallbackRig) wantRelease(c store.Charge, degraded, lost bool) {
	r.t.Helper()
	if ok, s := r.take(c); !ok || s.Degraded != degraded || s.Lost != lost {
		r.t.Errorf("%+v: %t, %+v, want it degraded: %t, lost: %t", c, ok, s, degraded, lost)
	}
}

// wantHeld checks how many slots are held in the primary, and in both stores.
func (r *fallbackRig) wantHeld(c store.Charge, primary, both int64) {
	r.t.Helper()
	if held := c.Limit.Capacity - r.peekPrimary(c).Remaining; held != primary {
		r.t.Errorf("%d are held in the primary, want %d", held, primary)
	}
	if s := r.Stats().Slots; s == nil || s.Held[c.Policy] != both {
		r.t.Errorf("the Stats have %+v, want %d held", s, both)
	}
}

func TestSlotsInAnOutage(t *testing.T) {
	inBubble(t, fallback.Config{Replicas: 2}, func(t *testing.T, r *fallbackRig) {
		take, release := slot(t, 4, 1), slot(t, 4, -1)
		for range 3 {
			r.want(take, true)
		}
		r.fail(teststore.Broken)
		r.wantCount(take, 2) // the share of 4
		r.wantHeld(take, 3, 5)
		one := slot(t, 1, 1)
		one.Key = "one"
		r.wantCount(one, 1)
		r.wantRelease(standby(one, 1), true, false)

		// A release goes where the slot came from, also while the primary is away.
		r.wantRelease(release, false, false)
		if ok, s, err := r.takeBy(store.WithoutStandIn(t.Context()), release); !ok || err != nil || s.Degraded || s.Lost {
			t.Errorf("without a stand-in: %t, %+v, %v", ok, s, err)
		}
		r.want(take, false)
		r.wantRelease(standby(take, 1), true, false)
		r.want(take, true)
		r.wantHeld(take, 1, 3)

		// Afterwards the slots of the secondary are held beside those of the primary.
		r.comeBack()
		r.wantCount(take, 3)
		r.wantHeld(take, 4, 6)
		calls := r.primary.Calls.Load()
		for _, lost := range []bool{false, false, true} {
			r.wantRelease(standby(take, 1), true, lost)
		}
		if r.primary.Calls.Load() != calls {
			t.Error("the primary was called for slots of the secondary")
		}
		for _, lost := range []bool{false, false, false, false, true} {
			r.wantRelease(release, false, lost)
		}
		r.wantHeld(take, 0, 0)
		if lost := r.Stats().Slots.Lost["slots"]; lost != 2 {
			t.Errorf("%d were lost, want 2", lost)
		}

		// The secondary does not know what the primary has granted, and knows what it has blocked.
		r.wantCount(take, 4)
		r.outage()
		r.fail(teststore.Broken)
		r.wantCount(take, 2)
		r.comeBack()
		r.blockPrimary(take, time.Minute)
		r.wantRelease(standby(take, 1), true, false)
		r.want(take, false)
		r.fail(teststore.Broken)
		if ok, s := r.take(take); ok || !s.Blocked {
			t.Errorf("blocked by the primary: %t, %+v", ok, s)
		}
	})
}

func TestSlotsAndTokensInAnOutage(t *testing.T) {
	inBubble(t, fallback.Config{Replicas: 2}, func(t *testing.T, r *fallbackRig) {
		take := func(want bool, cost int64, standby bool) {
			t.Helper()
			charges := []store.Charge{teststore.Months(t, cost), slot(t, 4, cost)}
			for i := range charges {
				charges[i].Standby = standby
			}
			if ok, err := r.Take(t.Context(), charges, make([]store.State, 2)); ok != want || err != nil {
				t.Fatalf("%t, %v, want %t", ok, err, want)
			}
		}
		left := func(tokens, free int64) {
			t.Helper()
			_, first := r.take(teststore.Months(t, 0))
			_, second := r.take(slot(t, 4, 0))
			if first.Remaining != tokens || second.Remaining != free {
				t.Fatalf("%d tokens and %d slots, want %d and %d", first.Remaining, second.Remaining, tokens, free)
			}
		}
		take(true, 1, false)
		r.fail(teststore.Broken)
		take(true, 1, false)
		take(true, 1, false)
		take(false, 1, false) // for want of a slot
		left(298, 0)
		take(true, -1, true)
		left(299, 1)
		r.take(teststore.Months(t, 299))
		take(false, 1, false) // for want of a token
		left(0, 1)
		take(true, -1, false) // of the primary: the slot at once, the token after the outage
		if got := r.peekPrimary(slot(t, 4, 0)).Remaining; got != 4 {
			t.Errorf("%d slots are free in the primary, want 4", got)
		}

		// A slot is released also if the call fails: nobody would release it later.
		r.comeBack()
		take(true, 1, false)
		r.fail(teststore.Broken)
		charges := []store.Charge{teststore.Months(t, -1), slot(t, 4, -1)}
		if _, err := r.Take(store.WithoutStandIn(t.Context()), charges, make([]store.State, 2)); !errors.Is(err, store.ErrAway) {
			t.Errorf("error %v, want ErrAway", err)
		}
		if got := r.peekPrimary(slot(t, 4, 0)).Remaining; got != 4 {
			t.Errorf("%d slots are free in the primary, want 4", got)
		}
	})
}
