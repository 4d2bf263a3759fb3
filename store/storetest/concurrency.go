package storetest

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

var concurrencyRules = []rule{
	{"no token is spent twice: of many identical calls at once each is told its own number, or when to retry", func(r *rig) {
		r.alike(80, []store.Charge{
			{Policy: "p", Key: "k", Limit: r.limit(1, hour, 50), Cost: 1},
			{Policy: "q", Key: "k", Limit: r.limit(1, hour, 100), Cost: 2},
			{Policy: "shadow", Key: "k", Limit: r.limit(1, hour, 25), Cost: 1, Shadow: true},
		})
	}},
	{"of many at once each is charged what it owes, and told its own debt", func(r *rig) {
		r.alike(80, []store.Charge{
			{Policy: "p", Key: "k", Limit: r.limit(1, hour, 2), Cost: 1, Owed: true},
			{Policy: "q", Key: "k", Limit: r.limit(1, hour, 1), Cost: 3, Owed: true},
		})
	}},
	{"of many at once that go to the deepest debt none is told of a deeper one", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, second, 1), Cost: deepest/1_000_000/30 + 1, Owed: true}
		r.together(40, func(int) {
			if ok, states := r.call(c); !ok || states[0].Wait > deepest*micro {
				r.Errorf("ok %t, %+v", ok, states)
			}
		})
		r.exact.take([]store.Charge{{Policy: "p", Key: "k", Limit: c.Limit, Cost: math.MaxInt64, Owed: true}}, r.now())
		peek(0)(&bucket{rig: r, Charge: c})
	}},
	{"of many at once that settle none leaves a debt", func(r *rig) {
		r.alike(40, []store.Charge{{Policy: "p", Key: "k", Limit: r.limit(1, hour, 50), Cost: 3, Settles: true}})
	}},
	{"of many at once the one that empties the bucket locks it, and the rest are denied", func(r *rig) {
		r.alike(60, []store.Charge{{Policy: "p", Key: "k", Limit: r.limit(1, hour, 30), Cost: 1, Lock: 7 * hour}})
	}},
	{"many keys at once do not disturb each other", func(r *rig) {
		allowed := r.hammer(16, 50, func(i int) []store.Charge {
			return []store.Charge{{Policy: "p", Key: "key " + string(rune('A'+i%100)), Limit: r.limit(1, hour, 4), Cost: 1}}
		})
		if allowed != 400 {
			r.Fatalf("%d calls were allowed, want 4 of each key", allowed)
		}
	}},
	{"calls of several charges in any order take all or none, and do not wait for each other", func(r *rig) {
		const burst, buckets = 60, 4
		limit := r.limit(1, hour, burst)
		charge := func(n int, cost int64) store.Charge {
			return store.Charge{Policy: "p" + string(rune('0'+n%buckets)), Key: "k", Limit: limit, Cost: cost}
		}
		allowed := r.hammer(16, 25, func(i int) []store.Charge {
			return []store.Charge{charge(i, 1), charge(i+1+i/buckets%(buckets-1), 1)}
		})
		_, states := r.call(charge(0, 0), charge(1, 0), charge(2, 0), charge(3, 0))
		left := int64(0)
		for _, s := range states {
			left += s.Remaining
		}
		if left != buckets*burst-2*allowed || allowed < burst {
			r.Fatalf("%d calls of 2 were allowed, and have left %d of %d tokens", allowed, left, buckets*burst)
		}
	}},
}

// alike makes n identical calls at once. Their answers must be those of the model to as many calls in a row.
func (r *rig) alike(n int, charges []store.Charge) {
	var mu sync.Mutex
	told := make(map[string]int)
	count := func(by int, ok bool, states []store.State) {
		mu.Lock()
		defer mu.Unlock()
		told[fmt.Sprintf("%t, %+v", ok, states)] += by
	}
	r.together(n, func(int) {
		ok, states := r.call(charges...)
		count(1, ok, states)
	})
	for range n {
		ok, states := r.exact.take(charges, r.now())
		count(-1, ok, states)
	}
	for a, n := range told {
		if n != 0 {
			r.Errorf("%d calls more than in a row were told %s", n, a)
		}
	}
}

// hammer makes calls from many goroutines and returns how many were allowed. next returns the charges of call i.
func (r *rig) hammer(goroutines, calls int, next func(i int) []store.Charge) int64 {
	var allowed atomic.Int64
	r.together(goroutines, func(g int) {
		for n := range calls {
			if ok, _ := r.call(next(g*calls + n)...); ok {
				allowed.Add(1)
			}
		}
	})
	return allowed.Load()
}

// together runs f in goroutines whose calls must not wait for each other.
func (r *rig) together(goroutines int, f func(g int)) {
	defer time.AfterFunc(30*second, func() { panic("storetest: calls have not returned after 30s: they wait for each other") }).Stop()
	var calls sync.WaitGroup
	for g := range goroutines {
		calls.Go(func() { f(g) })
	}
	calls.Wait()
}
