package redisstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// What no bucket can refuse is not taken before the others have agreed, so that nothing of it is to be given back:
// the deepest debt would tell nobody how much.
func TestACallOverSeveralSlotsThatIsRefusedLeavesADebtAsItIs(t *testing.T) {
	now := time.Now()
	s := ratelimit.Must(redisstore.New(redistest.SharedCluster(t, 3).Client(), redisstore.Config{Clock: func() time.Time { return now }}))
	owing, empty := charge(t, "owing"), costs(charge(t, "empty"), 100)
	take(t, s, empty)
	deep := take(t, s, owes(owing, 1_000_000))
	wantRefused(t, s, owes(owing, 1_000_000_000), empty)
	if got := look(t, s, owing); got.ResetAfter != deep.ResetAfter {
		t.Errorf("%+v after a refused call, want %v", got, deep.ResetAfter)
	}
}

// What is owed in one slot is charged with what is refunded in another, or not at all.
func TestWhatIsOwedOverSeveralSlotsIsNotChargedWhereAKeyHoldsNoBucket(t *testing.T) {
	client := redistest.SharedCluster(t, 3).Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	owing, bad := charge(t, "owing"), charge(t, "bad")
	if err := client.Set(t.Context(), "ratelimit:{bad}:p", "a string", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]store.Charge{"a refund": {Policy: "p", Key: "bad", Limit: bad.Limit, Cost: -1}, "owed": owes(bad, 1)} {
		ok, err := tryFor(10*time.Second, s, owes(owing, 150), other)
		wantRedisError(t, ok, err, "WRONGTYPE")
		if got := look(t, s, owing); got.Remaining != 100 {
			t.Errorf("%s: %+v after a call that failed elsewhere", name, got)
		}
	}
}

// Calls over several slots at once, some of which are refused: what others owe meanwhile is all charged.
func TestWhatIsOwedOverSeveralSlotsIsChargedOnce(t *testing.T) {
	now := time.Now()
	s := ratelimit.Must(redisstore.New(redistest.SharedCluster(t, 3).Client(), redisstore.Config{Clock: func() time.Time { return now }}))
	const callers, calls = 8, 20
	empty := costs(charge(t, "empty"), 100)
	take(t, s, empty)
	a, b := charge(t, "a"), charge(t, "b")
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				takeAll(t, s, owes(a, 3), owes(b, 1))
				wantRefused(t, s, owes(a, 3), empty)
			}
		})
	}
	wg.Wait()
	for c, want := range map[store.Charge]time.Duration{a: 3 * callers * calls * time.Hour, b: callers * calls * time.Hour} {
		if got := look(t, s, c).ResetAfter; got != want {
			t.Errorf("%s is full after %v, want %v", c.Key, got, want)
		}
	}
}
