package memstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func slot(t testing.TB, key string, n, cost int64) store.Charge {
	t.Helper()
	l, err := store.NewConcurrency(n)
	if err != nil {
		t.Fatal(err)
	}
	return store.Charge{Policy: "p", Key: key, Limit: l, Cost: cost}
}

func TestABucketIsKeptWhileASlotIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ratelimit.Must(memstore.New(memstore.Config{}))
		defer s.Close()
		for _, key := range []string{"held", "released", "other"} {
			take(t, s, slot(t, key, 3, 1))
		}
		take(t, s, slot(t, "held", 5, 1)) // under another limit
		take(t, s, slot(t, "released", 3, -1))
		take(t, s, charge(t, "other", 1)) // under a limit of another kind, and full within a second
		if got := s.Len(); got != 3 {
			t.Fatalf("%d buckets, want 3", got)
		}
		time.Sleep(time.Hour)
		if free := take(t, s, slot(t, "held", 3, 0)).Remaining; s.Len() != 1 || free != 1 {
			t.Errorf("%d buckets after an hour, want 1; of the one whose slots are held %d of 3 are free", s.Len(), free)
		}
		for range 2 {
			if state := take(t, s, slot(t, "held", 1, -1)); state.Lost {
				t.Errorf("%+v, want it not lost", state)
			}
		}
		time.Sleep(3 * time.Second)
		if got := s.Len(); got != 0 {
			t.Errorf("%d buckets after the last release", got)
		}
		take(t, s, slot(t, "held", 1, -1)) // of a slot that is not held
		if got := s.Len(); got != 0 {
			t.Errorf("a release of no slot has made %d buckets", got)
		}
	})
}

// A bucket of which slots are held makes room only if all others are blocked. Its slots are lost then.
func TestBucketsWhoseSlotsAreHeldMakeRoomLate(t *testing.T) {
	n := newNow()
	s := openAt(t, n, 8)
	for i := range 3 {
		take(t, s, slot(t, fmt.Sprint("held", i), 2, 1))
	}
	for i := range 20 {
		take(t, s, charge(t, fmt.Sprint("spent", i), 100))
	}
	for i := range 3 {
		if free := take(t, s, slot(t, fmt.Sprint("held", i), 2, 0)).Remaining; free != 1 {
			t.Errorf("held%d: %d of 2 are free, want 1", i, free)
		}
	}
	for i := range 7 {
		setBlock(t, s, charge(t, fmt.Sprint("blocked", i), 1), time.Hour)
	}
	take(t, s, slot(t, "last", 2, 1))
	for i := range 7 {
		if !take(t, s, charge(t, fmt.Sprint("blocked", i), 0)).Blocked {
			t.Errorf("blocked%d was forgotten", i)
		}
	}
	if state := take(t, s, slot(t, "held0", 2, -1)); !state.Allowed || !state.Lost {
		t.Errorf("a release of a slot that was forgotten: %+v", state)
	}
	if check := s.Check(); check != "" {
		t.Error(check)
	}
}

func TestStatsOfSlots(t *testing.T) {
	s := openAt(t, newNow(), 10_000)
	for i := range 100 {
		c := slot(t, fmt.Sprint(i), 2, 1)
		if i%4 == 0 {
			c.Policy = "q"
		}
		take(t, s, c)
		take(t, s, charge(t, fmt.Sprint("rate", i), 1))
	}
	take(t, s, slot(t, "none", 2, -1))
	for range 2 { // Stats are the caller's
		got := s.Stats().Slots
		if got == nil || fmt.Sprint(*got) != "{map[p:75 q:25] map[p:1]}" {
			t.Fatalf("%+v, want 75 held of p and 25 of q, and one of p lost", got)
		}
		got.Held["p"], got.Lost["p"] = 7, 7
	}
	for i := range 100 {
		take(t, s, slot(t, fmt.Sprint(i), 2, -1))
	}
	if got := s.Stats().Slots; fmt.Sprint(*got) != "{map[q:25] map[p:26]}" {
		t.Errorf("%+v, want 25 held of q, and 26 of p lost", got)
	}
}
