package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// late is how much longer than its timeout a call may take where the race detector and other tests share the
// processors.
const late = time.Second

// lasts returns for how long callers meet a fault. It is longer than the timeouts of their calls.
func lasts() time.Duration { return time.Duration(testsize.Of(350, 1500)) * time.Millisecond }

// A target is a call that many make, and what became of it. No other charges its buckets.
type target struct {
	charges []store.Charge
	burst   int64

	mu                      sync.Mutex
	allowed, denied, failed int64
	starved                 int64 // of those that failed: because this process lacked processor time
	slowest                 time.Duration
	errs                    []error // of those that failed, each once
}

// targets are calls of one charge for each policy: a few hot keys that run out, and many that never do.
func targets(t *testing.T, policies ...string) (all []*target) {
	for i := range 40 {
		burst := int64(100_000)
		if i < 4 {
			burst = 200
		}
		all = append(all, newTarget(t, fmt.Sprint("k", i), burst, policies...))
	}
	return all
}

func newTarget(t *testing.T, key string, burst int64, policies ...string) *target {
	x := &target{burst: burst}
	for _, policy := range policies {
		x.charges = append(x.charges, store.Charge{Policy: policy, Key: key, Limit: limit(t, 1, time.Hour, burst), Cost: 1})
	}
	return x
}

func (x *target) try(s store.Store, timeout time.Duration) {
	begin := time.Now()
	ok, err := tryFor(timeout, s, x.charges...)
	took := time.Since(begin)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.slowest = max(x.slowest, took)
	switch {
	case err != nil:
		x.failed++
		if errors.Is(err, store.ErrOverloaded) && !errors.Is(err, redisstore.ErrQueueFull) {
			x.starved++
			return
		}
		if !slices.ContainsFunc(x.errs, func(other error) bool { return other.Error() == err.Error() }) {
			x.errs = append(x.errs, err)
		}
	case ok:
		x.allowed++
	default:
		x.denied++
	}
}

// under has many call all targets while fault happens, each call with timeout.
func under(s store.Store, all []*target, timeout time.Duration, fault func()) {
	ctx, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	for i := range 64 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 0))
			for ctx.Err() == nil {
				x := all[r.IntN(len(all))]
				if r.IntN(2) == 0 {
					x = all[r.IntN(min(8, len(all)))] // half of the calls are for a few
				}
				x.try(s, timeout)
				time.Sleep(time.Duration(r.IntN(6)) * time.Millisecond)
			}
		})
	}
	fault()
}

// recovers has s answer calls of all targets again, and returns how long that took.
func recovers(t *testing.T, s store.Store, all []*target) time.Duration {
	t.Helper()
	begin := time.Now()
	for _, x := range all {
		x := newTarget(t, x.charges[0].Key, 1, "recovers")
		until(t, "a call is answered", func() bool {
			x.try(s, 500*time.Millisecond)
			return x.allowed+x.denied > 0
		})
	}
	return time.Since(begin)
}

// settled checks what was told against what the buckets hold, once s is closed. They were lost up to losses times.
func settled(t *testing.T, s *redisstore.Store, client redisstore.Client, all []*target, timeout time.Duration, losses int64) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	var allowed, denied, failed, over int64
	var slowest time.Duration
	var err error
	for _, x := range all {
		allowed, denied, failed, slowest = allowed+x.allowed, denied+x.denied, failed+x.failed, max(slowest, x.slowest)
		over += max(0, x.allowed-x.burst)
		if len(x.errs) > 0 {
			err = x.errs[0]
		}
		// One token may come while the test runs.
		if x.allowed > x.burst*(1+losses)+1 {
			t.Errorf("%s: %d allowed of %d, with the buckets lost %d times", x.charges[0].Key, x.allowed, x.burst, losses)
		}
		for _, c := range x.charges {
			left := look(t, again, c).Remaining
			if left < x.burst-x.allowed-x.failed {
				t.Errorf("%s of %s: %d left of %d after %d that were allowed and %d that failed: charged twice", c.Policy, c.Key, left, x.burst, x.allowed, x.failed)
			}
			if losses == 0 && left > x.burst-x.allowed+1 {
				t.Errorf("%s of %s: %d left of %d after %d that were allowed: not charged", c.Policy, c.Key, left, x.burst, x.allowed)
			}
		}
	}
	t.Logf("%d allowed, %d of them over a burst; %d denied; %d failed, such as by %v; slowest %v of %v", allowed, over, denied, failed, err, slowest, timeout)
	if slowest > timeout+late {
		t.Errorf("a call took %v of %v", slowest, timeout)
	}
	if allowed == 0 {
		t.Error("nothing was allowed")
	}
}

// noneFailed is for faults that callers must not notice. Calls of a process without processor time may fail.
func noneFailed(t *testing.T, all []*target) {
	t.Helper()
	for _, x := range all {
		if failed := x.failed - x.starved; failed > 0 {
			t.Errorf("%s: %d calls failed, such as by %v", x.charges[0].Key, failed, x.errs)
		}
	}
}

// repeat calls f again and again for d.
func repeat(d time.Duration, f func()) {
	for begin := time.Now(); time.Since(begin) < d; {
		f()
		time.Sleep(5 * time.Millisecond)
	}
}
