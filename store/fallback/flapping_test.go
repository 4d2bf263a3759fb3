package fallback_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// A bucket that is known to be empty is empty for a call that fails, and what did not reach the primary is charged to
// it: before it is given up there are some of these in each outage.
func TestAPrimaryThatComesAndGoesAdmitsNoMoreThanTheLimit(t *testing.T) {
	for name, f := range map[string]teststore.Fault{"refused": teststore.Refused, "broken": teststore.Broken, "lost replies": teststore.LostReply} {
		for _, replicas := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) { testComingAndGoing(t, name, f, replicas) })
		}
	}
}

func testComingAndGoing(t *testing.T, name string, f teststore.Fault, replicas int) {
	const rate, burst = 5, 10
	length := time.Duration(testsize.Of(60, 120)) * time.Second
	primary := &teststore.Faulty{Store: teststore.OpenMemory(t, nil)}
	var admitted atomic.Int64
	var running sync.WaitGroup
	begin := time.Now()
	for range replicas {
		s := openFallback(t, primary, fallback.Config{Replicas: replicas})
		for range 12 / replicas {
			running.Go(func() {
				c := []store.Charge{{Policy: "p", Key: "k", Limit: teststore.Limit(t, rate, time.Second, burst), Cost: 1}}
				for time.Since(begin) < length {
					if ok, err := s.Take(t.Context(), c, make([]store.State, 1)); err != nil {
						t.Error(err)
					} else if ok {
						admitted.Add(1)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
	}
	for time.Since(begin) < length {
		time.Sleep(500 * time.Millisecond)
		primary.Have(f)
		time.Sleep(300 * time.Millisecond)
		primary.Have(teststore.Nearby)
	}
	running.Wait()
	got := float64(admitted.Load()) / (burst + rate*length.Seconds())
	t.Logf("%s, %d replicas: %.3f of the limit", name, replicas, got)
	if got > 1.02 || got < 0.9 {
		t.Errorf("%s, %d replicas: %.3f of the limit", name, replicas, got)
	}
}

// A single call that did not reach the primary is charged when the next can.
func TestACallThatDidNotReachThePrimaryIsChargedToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, 10), Cost: 4}
		d.take(c)
		d.primary.Have(teststore.Refused)
		if ok, state := d.take(c); !ok || !state.Degraded || state.Remaining != 2 {
			t.Errorf("%t, %+v, want 2 left", ok, state)
		}
		if ok, _ := d.take(c); ok {
			t.Error("allowed what the bucket does not hold")
		}
		time.Sleep(time.Second)
		d.wantMissing(c, 4)
		d.primary.Mend()
		time.Sleep(time.Second)
		d.wantMissing(c, 8)
		d.take(owed(c, 1))
		d.wantMissing(c, 9)
		if d.Away() != nil {
			t.Error("given up")
		}
	})
}
