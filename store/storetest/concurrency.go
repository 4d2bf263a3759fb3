package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

var concurrencyRules = []rule{
	{"no token is spent twice, however many take at once", func(r *rig) {
		const burst, goroutines, calls = 100, 16, 25
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Hour, burst), Cost: 1}
		allowed := r.hammer(goroutines, calls, func(int) []store.Charge { return []store.Charge{c} })
		if allowed != burst {
			r.Fatalf("%d of %d calls were allowed, want %d", allowed, goroutines*calls, burst)
		}
	}},
	{"calls of several charges in any order take all or none, and do not wait for each other", func(r *rig) {
		const burst, goroutines, calls = 60, 16, 25
		limit := r.limit(1, time.Hour, burst)
		charges := make([]store.Charge, 4)
		for i := range charges {
			charges[i] = store.Charge{Policy: "p" + string(rune('0'+i)), Key: "k", Limit: limit, Cost: 1}
		}
		allowed := r.hammer(goroutines, calls, func(i int) []store.Charge {
			n := len(charges)
			return []store.Charge{charges[i%n], charges[(i+1+i/n%(n-1))%n]}
		})
		var spent int64
		for _, c := range charges {
			spent += burst - r.peek(c).Remaining
		}
		if spent != 2*allowed {
			r.Fatalf("%d tokens were spent by %d calls of 2, want %d", spent, allowed, 2*allowed)
		}
		if allowed < burst {
			r.Fatalf("%d calls were allowed, want at least %d", allowed, burst)
		}
	}},
	{"many keys at once do not disturb each other", func(r *rig) {
		const keys, each = 100, 4
		limit := r.limit(1, time.Hour, each)
		allowed := r.hammer(16, 50, func(i int) []store.Charge {
			return []store.Charge{{Policy: "p", Key: "key " + string(rune('A'+i%keys)), Limit: limit, Cost: 1}}
		})
		if allowed != keys*each {
			r.Fatalf("%d calls were allowed, want %d", allowed, keys*each)
		}
	}},
	{"of many identical calls at once each is told its own number, and those refused when to retry", func(r *rig) {
		const burst, goroutines = 50, 80
		limit := r.limit(1, time.Hour, burst)
		// The shadow runs dry before the others do.
		charges := []store.Charge{
			{Policy: "p", Key: "k", Limit: limit, Cost: 1},
			{Policy: "q", Key: "k", Limit: r.limit(1, time.Hour, 2*burst), Cost: 2},
			{Policy: "shadow", Key: "k", Limit: r.limit(1, time.Hour, burst/2), Cost: 1, Shadow: true},
		}
		var mu sync.Mutex
		told := make(map[int64]int)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				states := make([]store.State, len(charges))
				ok, err := r.store.Take(context.Background(), charges, states)
				mu.Lock()
				defer mu.Unlock()
				p, q, shadow := states[0], states[1], states[2]
				switch {
				case err != nil:
					r.Error(err)
				case !ok && (p.RetryAfter != time.Hour || q.RetryAfter != 2*time.Hour || shadow.RetryAfter != time.Hour):
					r.Errorf("refused with %+v", states)
				case ok && (q.Remaining != 2*p.Remaining || shadow.Allowed != (p.Remaining >= burst/2)):
					r.Errorf("allowed with %+v", states)
				case ok:
					told[p.Remaining]++
				}
			})
		}
		r.join(&wg)
		for n := range int64(burst) {
			if told[n] != 1 {
				r.Errorf("%d calls were told that %d remain, want 1", told[n], n)
			}
		}
	}},
}

// hammer makes calls from many goroutines and returns how many were allowed. next returns the charges of call i.
func (r *rig) hammer(goroutines, calls int, next func(i int) []store.Charge) int64 {
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for n := range calls {
				charges := next(g*calls + n)
				ok, err := r.store.Take(context.Background(), charges, make([]store.State, len(charges)))
				if err != nil {
					r.Error(err)
					return
				}
				if ok {
					allowed.Add(1)
				}
			}
		})
	}
	r.join(&wg)
	return allowed.Load()
}

// stuck is how long calls may take that wait for nothing, on a busy machine.
const stuck = 30 * time.Second

// join waits for calls that must not wait for each other.
func (r *rig) join(calls *sync.WaitGroup) {
	r.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		calls.Wait()
	}()
	select {
	case <-done:
	case <-time.After(stuck):
		r.Fatalf("calls have not returned after %v: they wait for each other", stuck)
	}
}
