package fallback_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// A fleet is replicas of a fallback each, that come and go as an autoscaler has it. The newest leave first, and with them
// what is in their memory.
type fleet struct {
	t       *testing.T
	primary *teststore.Faulty
	number  atomic.Int64
	asked   atomic.Int64 // calls of ReplicasFunc
	stores  []*fallback.Store
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{t: t, primary: &teststore.Faulty{Store: teststore.OpenMemory(t, nil)}}
	f.scale(n)
	return f
}

// scale has n replicas run.
func (f *fleet) scale(n int) {
	f.number.Store(int64(n))
	for len(f.stores) < n {
		f.stores = append(f.stores, openFallback(f.t, f.primary, fallback.Config{ReplicasFunc: func() int {
			f.asked.Add(1)
			return int(f.number.Load())
		}}))
	}
	for _, s := range f.stores[n:] {
		s.Close()
	}
	f.stores = f.stores[:n]
}

// away has every replica give the primary up, by calls of buckets that nothing else uses.
func (f *fleet) away() {
	f.t.Helper()
	for _, s := range f.stores {
		for i := 0; s.Away() == nil; i++ {
			other := store.Charge{Policy: "other", Key: fmt.Sprint(i), Limit: teststore.Limit(f.t, 1, time.Hour, 100), Cost: 1}
			teststore.Must(f.t, s, other)
			if i == 100 {
				f.t.Fatal("the primary is not given up")
			}
		}
	}
}

// admit returns how many of c the replicas from one on admit, until all of them refuse.
func (f *fleet) admit(c store.Charge, from int) (n int) {
	f.t.Helper()
	for _, s := range f.stores[from:] {
		for {
			ok, err := s.Take(f.t.Context(), []store.Charge{c}, make([]store.State, 1))
			if err != nil {
				f.t.Fatal(err)
			}
			if !ok {
				break
			}
			n++
		}
	}
	return n
}

// Two replicas become four in an outage, and two again. They admit what one limit does, whatever was spent before.
func TestReplicasThatComeAndGoInAnOutageKeepToTheLimit(t *testing.T) {
	for name, first := range map[string]time.Duration{"long after an outage began": 20 * time.Second, "soon after": 500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTwoFourTwo(t, first) })
		})
	}
}

func testTwoFourTwo(t *testing.T, first time.Duration) {
	const rate, burst, phase = 100, 200, 20 * time.Second
	f := newFleet(t, 2)
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, rate, time.Second, burst), Cost: 1}
	begin, admitted := time.Now(), 0
	check := func(when string) {
		t.Helper()
		most := burst + rate*time.Since(begin).Seconds()
		if part := float64(admitted) / most; part > 1.02 || part < 0.9 {
			t.Errorf("%s: %d admitted of %.0f", when, admitted, most)
		} else {
			t.Logf("%s: %.4f of the limit admitted", when, part)
		}
	}
	during := func(length time.Duration) {
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			admitted += f.admit(c, 0)
		}
	}
	during(phase / 10)
	check("before the outage")
	f.primary.Have(teststore.Broken)
	f.away()
	during(first)
	check("by two")
	f.scale(4)
	f.away()
	during(phase / 4)
	check("soon after two came")
	during(phase)
	check("by four")
	f.scale(2)
	during(phase)
	check("by two again")
	f.primary.Mend()
	during(phase / 4)
	check("after the outage")
}

// Replicas that were not asked for a bucket while others used it have their shares of that time, and no larger ones.
func TestAShareThatGrowsIsNotFull(t *testing.T) {
	for name, touched := range map[string]int64{"used once": 1, "not used": 0} {
		synctest.Test(t, func(t *testing.T) {
			const burst = 200
			f := newFleet(t, 4)
			f.primary.Have(teststore.Broken)
			f.away()
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, 100*time.Hour, burst), Cost: 1}
			admitted := 0
			for _, s := range f.stores[:2] {
				if touched > 0 {
					teststore.Must(t, s, c)
					admitted++
				}
			}
			admitted += f.admit(c, 2)
			f.scale(2)
			for range 60 {
				time.Sleep(100 * time.Millisecond)
				for _, s := range f.stores {
					other := teststore.Months(t, 0)
					other.Key = "other"
					teststore.Must(t, s, other)
				}
			}
			if admitted += f.admit(c, 0); admitted != burst {
				t.Errorf("%s: %d admitted of %d", name, admitted, burst)
			}
		})
	}
}

// A replica notices on the way how many there are, and does not ask while the primary answers.
func TestReplicasFuncIsCalledRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		c := teststore.Months(t, 1)
		for range 500 {
			teststore.Must(t, f.stores[0], c)
			time.Sleep(time.Millisecond)
		}
		if n := f.asked.Load(); n != 0 {
			t.Errorf("asked %d times while the primary answers", n)
		}
		f.primary.Have(teststore.Broken)
		f.away()
		c.Cost = 0
		for range 5000 {
			teststore.Must(t, f.stores[0], c)
			time.Sleep(time.Millisecond)
		}
		if n := f.asked.Load(); n < 40 || n > 55 {
			t.Errorf("asked %d times in 5 s of an outage, want about 50", n)
		}
	})
}

// Replicas of random number and demand admit of no bucket more than its limit. Those that come have shares of their own at
// once, for which the others have made up before the next change.
func TestReplicasOfRandomNumberKeepToTheLimit(t *testing.T) {
	for seed := range uint64(testsize.Of(2, 4)) {
		synctest.Test(t, func(t *testing.T) { testRandomReplicas(t, seed) })
	}
}

func testRandomReplicas(t *testing.T, seed uint64) {
	const most, changes = 5, 12
	r := rand.New(rand.NewPCG(seed, 13))
	rates, bursts := []float64{5, 20, 20, 60}, []float64{10, 10, 40, 40}
	charges := make([]store.Charge, len(rates))
	for k := range charges {
		limit := teststore.Limit(t, int64(rates[k]), time.Second, int64(bursts[k]))
		charges[k] = store.Charge{Policy: "p", Key: fmt.Sprint(k), Limit: limit, Cost: 1}
	}
	f := newFleet(t, 1+r.IntN(most))
	f.primary.Have(teststore.Broken)
	f.away()
	admitted, demand := make([]float64, len(rates)), make([]float64, len(rates))
	begin, lag := time.Now(), time.Duration(0) // until replicas notice that others came
	check := func(spare func(k int) float64) {
		t.Helper()
		for k := range charges {
			if over := admitted[k] - bursts[k] - rates[k]*(time.Since(begin)+lag).Seconds(); over > spare(k) {
				t.Errorf("seed %d, %v/s burst %v, %d replicas after %v: %.2f more than burst + rate·t, want at most %.2f",
					seed, rates[k], bursts[k], len(f.stores), time.Since(begin), over, spare(k))
			}
		}
	}
	for range changes {
		until := time.Now().Add(10*time.Second + time.Duration(r.Int64N(int64(10*time.Second))))
		for change := time.Now(); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			if !time.Now().Before(change) { // from no demand to more than there is
				for k := range demand {
					demand[k] = max(0, 3*r.Float64()-1)
				}
				change = time.Now().Add(time.Duration(r.Int64N(int64(5 * time.Second))))
			}
			for _, s := range f.stores {
				for k := range charges {
					if r.Float64() > demand[k]*rates[k]/100 {
						continue
					}
					if ok, err := s.Take(t.Context(), charges[k:k+1], make([]store.State, 1)); err != nil {
						t.Fatal(err)
					} else if ok {
						admitted[k]++
					}
				}
			}
			check(func(k int) float64 { return bursts[k] })
		}
		check(func(int) float64 { return most })
		if t.Failed() {
			return
		}
		f.scale(1 + r.IntN(most))
		f.away()
		lag += 100 * time.Millisecond
	}
	for k := range charges {
		t.Logf("seed %d, %v/s burst %v: %.3f of the limit", seed, rates[k], bursts[k], admitted[k]/(bursts[k]+rates[k]*time.Since(begin).Seconds()))
	}
}
