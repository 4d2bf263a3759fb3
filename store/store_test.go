package store_test

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Store is given states that hold what another call has left in them.
func TestFillLeavesNothingOfTheStateBefore(t *testing.T) {
	limit, err := store.NewLimit(1, time.Second, 5)
	if err != nil {
		t.Fatal(err)
	}
	token := limit.Unit
	for name, tt := range map[string]struct {
		charge  store.Charge
		credits int64
		charged bool
		want    store.State
	}{
		"charged":          {store.Charge{Cost: 1}, 4 * token, true, store.State{Allowed: true, Remaining: 4, ResetAfter: time.Second}},
		"waits":            {store.Charge{Cost: 1, MaxWait: time.Minute}, -2 * token, true, store.State{Allowed: true, ResetAfter: 7 * time.Second, Wait: 2 * time.Second}},
		"could be charged": {store.Charge{Cost: 1}, 2 * token, false, store.State{Allowed: true, Remaining: 2, ResetAfter: 3 * time.Second}},
		"refused":          {store.Charge{Cost: 1}, 0, false, store.State{RetryAfter: time.Second, ResetAfter: 5 * time.Second}},
		"never":            {store.Charge{Cost: 6}, 5 * token, false, store.State{Remaining: 5, RetryAfter: store.Never}},
		"a look":           {store.Charge{}, 5 * token, true, store.State{Allowed: true, Remaining: 5}},
	} {
		tt.charge.Limit = limit
		for _, before := range []store.State{
			{},
			{Allowed: true, Degraded: true, Remaining: 9, RetryAfter: 9, ResetAfter: 9, Wait: 9},
		} {
			s := before
			tt.charge.Fill(&s, tt.credits, 0, 0, tt.charged)
			if s != tt.want {
				t.Errorf("%s: after %+v: %+v, want %+v", name, before, s, tt.want)
			}
		}
	}
}
