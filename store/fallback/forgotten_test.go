package fallback_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// One replica is cut off while the others use the bucket. Then all are, for long enough that the bucket is forgotten.
// The others return first. What the bucket did not refill pays for what they allowed while it was full, and not for
// what the first replica allowed before.
func TestAForgottenBucketDoesNotPayForAnEarlierOutage(t *testing.T) {
	for name, c := range map[string]struct {
		rate, burst int64
		one, all    time.Duration
	}{
		"cut off for long": {10, 10, time.Minute, 4 * time.Second},
		"large burst":      {20, 400, 10 * time.Second, 22 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testForgotten(t, c.rate, c.burst, c.one, c.all)
			})
		})
	}
}

// testForgotten has one replica of three cut off for some time, and then all of them.
func testForgotten(t *testing.T, rate, burst int64, one, all time.Duration) {
	const replicas = 3
	memory := memstore.New(memstore.Config{}) // which forgets full buckets
	defer memory.Close()
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, rate, time.Second, burst), Cost: 1}
	var admitted atomic.Int64
	var running sync.WaitGroup
	stop := make(chan struct{})
	links := make([]*teststore.Faulty, replicas)
	begin := time.Now()
	for i := range links {
		links[i] = &teststore.Faulty{Store: memory}
		links[i].Have(teststore.Nearby)
		f := openFallback(t, links[i], fallback.Config{Replicas: replicas})
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second * replicas / time.Duration(5*rate)):
				}
				if ok, err := f.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); err != nil {
					t.Error(err)
				} else if ok {
					admitted.Add(1)
				}
			}
		})
	}
	time.Sleep(10 * time.Second) // the bucket is empty
	links[0].Have(teststore.Refused)
	time.Sleep(one)
	links[1].Have(teststore.Refused)
	links[2].Have(teststore.Refused)
	time.Sleep(all)
	links[1].Have(teststore.Nearby)
	links[2].Have(teststore.Nearby)
	time.Sleep(2 * time.Second)
	links[0].Have(teststore.Nearby)
	time.Sleep(2 * time.Second)
	close(stop)
	running.Wait()
	peek := c
	peek.Cost = 0
	missing := teststore.Must(t, memory, peek)[0].ResetAfter
	most := float64(rate) * (time.Since(begin) + missing).Seconds() // until it is full again
	if got := float64(admitted.Load()); got > most+1 || got < 0.9*most {
		t.Errorf("%.0f admitted, want at most %.0f, and nearly as many", got, most)
	}
}

// A replica that has requests for a key only late in an outage of all shares what the bucket did not refill with one
// that has them all the time.
func TestALateStandInIsPaidByWhatTheBucketDidNotRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New(memstore.Config{})
		defer memory.Close()
		c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 10, time.Second, 10), Cost: 1}
		primary := &teststore.Faulty{Store: memory}
		one, late := openFallback(t, primary, fallback.Config{Replicas: 2}), openFallback(t, primary, fallback.Config{Replicas: 2})
		other := c
		other.Key = "other"
		primary.Have(teststore.Refused)
		take := func(s store.Store, c store.Charge) {
			if _, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 1200 {
			take(one, c)
			if i < 600 {
				take(late, other)
			} else {
				take(late, c)
			}
			time.Sleep(50 * time.Millisecond)
		}
		primary.Mend()
		time.Sleep(time.Second)
		peek := c
		peek.Cost = 0
		if s := teststore.Must(t, memory, peek)[0]; s.ResetAfter > time.Second {
			t.Errorf("a debt of %v after an outage of all", s.ResetAfter-time.Second)
		}
	})
}
