package decorators_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// Replicas of a stack have troubles of their own on the way to one primary. While k of n have some, all together admit at
// most 1 + k/n times the limit, and a burst more, besides what was answered for calls that the primary may have carried
// out.
func TestStacksOverPartialOutagesAreBounded(t *testing.T) {
	for _, name := range []string{"Lease(Fallback(DenialCache(s)))", "Fallback(Lease(s))"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testPartialOutages(t, stacks[name], 0) })
		})
	}
}

func testPartialOutages(t *testing.T, stack func(testing.TB, store.Store, lease.Config, fallback.Config, denialcache.Config) store.Store, seed uint64) {
	const replicas, callers, length = 3, 4, 45 * time.Second
	memory := teststore.OpenMemory(t, nil)
	limits := []store.Limit{teststore.Limit(t, 5, time.Second, 10), teststore.Limit(t, 20, time.Second, 20), teststore.Limit(t, 20, time.Second, 100), teststore.Limit(t, 60, time.Second, 40)}
	rates, bursts := []float64{5, 20, 20, 60}, []float64{10, 20, 100, 40}
	admitted, uncertain := make([]atomic.Int64, len(limits)), make([]atomic.Int64, len(limits))
	var running sync.WaitGroup
	stop := make(chan struct{})
	links := make([]*teststore.Faulty, replicas)
	begin := time.Now()
	for i := range links {
		links[i] = &teststore.Faulty{Store: memory}
		links[i].Have(teststore.Nearby)
		away := new(atomic.Bool)
		s := stack(t, links[i], lease.Config{}, fallback.Config{
			Replicas: replicas,
			OnChange: func(is bool, _ error) { away.Store(is) },
		}, denialcache.Config{})
		for range callers {
			running.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(1 + rand.N(40*time.Millisecond)):
					}
					k := rand.IntN(len(limits))
					c := []store.Charge{{Policy: "p", Key: fmt.Sprint(k), Limit: limits[k], Cost: 1}}
					states := make([]store.State, 1)
					before := away.Load()
					ok, err := s.Take(t.Context(), c, states)
					if err != nil {
						t.Error(err)
					}
					if ok {
						admitted[k].Add(1)
						if states[0].Degraded && !before {
							uncertain[k].Add(1)
						}
					}
				}
			})
		}
	}
	r := rand.New(rand.NewPCG(seed, 3))
	faults := []teststore.Fault{teststore.Refused, teststore.Broken, teststore.Hung, teststore.LostReply}
	var troubled [replicas]bool
	var cut time.Duration // of all replicas
	for time.Since(begin) < length {
		wait := time.Duration(r.Int64N(int64(3 * time.Second)))
		time.Sleep(wait)
		for _, is := range troubled {
			if is {
				cut += wait
			}
		}
		n, fault := r.IntN(replicas), r.IntN(7) // almost half of the time none
		if troubled[n] = fault < len(faults); troubled[n] {
			links[n].Have(faults[fault])
		} else {
			links[n].Have(teststore.Nearby)
		}
	}
	for _, l := range links {
		l.Have(teststore.Nearby)
	}
	time.Sleep(3 * time.Second)
	for k := range limits {
		most := 2*bursts[k] + rates[k]*(time.Since(begin).Seconds()+cut.Seconds()/replicas)
		got, spare := float64(admitted[k].Load()), float64(uncertain[k].Load())
		t.Logf("seed %d, %v/s burst %v: %.3f of the limit in %v, %.0f for calls that failed", seed, rates[k], bursts[k], got/most, time.Since(begin), spare)
		if got > most+spare+1 {
			t.Errorf("seed %d, %v/s burst %v: %.0f admitted, want at most %.0f and %.0f for calls that failed", seed, rates[k], bursts[k], got, most, spare)
		}
	}
	close(stop)
	running.Wait()
}
