package outbound_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/outbound"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// The rules of learning, in a bubble: 8 replicas of 16 callers each, who call whenever they may.
type simulation struct {
	api     api
	limit   ratelimit.Limit
	latency time.Duration // of a call and its answer: half of it to three halves
	idle    time.Duration // before the first call
	length  time.Duration
}

func (s simulation) run(t *testing.T) {
	t.Helper()
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	defer memory.Close()
	ctx, cancel := context.WithTimeout(t.Context(), s.length)
	defer cancel()
	travel := func() {
		time.Sleep(s.latency/4 + time.Duration(rand.Int64N(int64(s.latency/2))))
	}
	var callers sync.WaitGroup
	for range 8 {
		q, err := outbound.NewQuota(outbound.Config{
			Limiter: ratelimit.Must(ratelimit.New(ratelimit.Config{Store: memory})),
			Policy:  ratelimit.Policy{Name: "api", Limit: s.limit},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 16 {
			callers.Go(func() {
				time.Sleep(s.idle)
				for {
					turn, err := q.Wait(ctx, "key", 1)
					if err != nil {
						return
					}
					travel()
					v := s.api.call(time.Now())
					travel()
					q.Report(ctx, turn, outbound.Report{
						Known: true, Remaining: v.left, Reset: time.Until(v.reset),
						Refused: !v.ok, RetryAfter: (v.retryAfter + time.Second - 1).Truncate(time.Second),
					})
				}
			})
		}
	}
	callers.Wait()
}

// Windows whose end is told in whole seconds, rounded up or down, and which end anywhere within a second. How much later
// or earlier, a replica learns only as exactly as it calls often: with 200 calls in a window, that costs some of them.
func TestSimulatedFixedWindows(t *testing.T) {
	const window, learning, measured = 10 * time.Second, 4, 3
	simulate := func(quota, least int64, latency, offset time.Duration, floor bool) {
		idle := time.Duration(rand.Int64N(int64(window)))
		t.Run(fmt.Sprintf("%d latency %v offset %v floor %t idle %v", quota, latency, offset, floor, idle), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fixedWindow{quota: quota, window: window, start: time.Now().Add(-offset - 3*time.Second), floor: floor}
				simulation{a, ratelimit.Limit{Rate: quota, Per: window}, latency, idle, (learning + measured + 1) * window}.run(t)
				counts := a.of(learning + measured)
				for i, c := range counts[learning:] {
					if c.refused > 0 || c.used < least {
						t.Errorf("window %d: %d of %d used, %d refused", learning+i, c.used, quota, c.refused)
					}
				}
				t.Log(counts)
			})
		})
	}
	for i, latency := range []time.Duration{4 * time.Millisecond, 40 * time.Millisecond} {
		for j, offset := range []time.Duration{0, 300 * time.Millisecond, 950 * time.Millisecond} {
			for k, floor := range []bool{false, true} {
				if testsize.Of((i+j+k)%2, 0) == 0 { // all pairs of two of the three
					simulate(200, 190, latency, offset, floor)
				}
			}
		}
	}
	simulate(2000, 1960, 4*time.Millisecond, 300*time.Millisecond, true)
	if testsize.Of(0, 1) == 1 {
		simulate(2000, 1960, 20*time.Millisecond, 950*time.Millisecond, false)
	}
}

// Others take a part of each window at once. The rest ends before the window does, and the bucket of the replicas still
// refills then.
func TestSimulatedWindowsThatOthersUse(t *testing.T) {
	const quota, window, learning, measured = 2000, 10 * time.Second, 3, 3
	for _, floor := range []bool{false, true}[:testsize.Of(1, 2)] {
		synctest.Test(t, func(t *testing.T) {
			a := &fixedWindow{quota: quota, window: window, start: time.Now(), floor: floor}
			var others sync.WaitGroup
			others.Go(func() {
				for range learning + measured {
					time.Sleep(time.Second)
					for range 600 {
						a.call(time.Now())
					}
					time.Sleep(window - time.Second)
				}
			})
			simulation{a, ratelimit.Limit{Rate: quota, Per: window}, 4 * time.Millisecond, 0, (learning + measured) * window}.run(t)
			others.Wait()
			counts := a.of(learning + measured)
			for i, c := range counts[learning:] {
				if c.refused > 0 || c.used < quota*97/100 {
					t.Errorf("window %d: %d of %d used, %d refused", learning+i, c.used, quota, c.refused)
				}
			}
			t.Log(counts)
		})
	}
}

func TestSimulatedBuckets(t *testing.T) {
	const learning, measured = 12, 10
	for i, limit := range []ratelimit.Limit{ratelimit.PerSecond(200).WithBurst(400), ratelimit.PerSecond(200).WithBurst(20), ratelimit.PerSecond(10)} {
		for j, latency := range []time.Duration{4 * time.Millisecond, 40 * time.Millisecond} {
			if testsize.Of((i+j)%2, 0) != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v latency %v", limit, latency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					burst := limit.Burst
					if burst == 0 {
						burst = limit.Rate
					}
					a := &bucketAPI{rate: float64(limit.Rate), burst: float64(burst)}
					simulation{a, limit, latency, 0, (learning + measured) * time.Second}.run(t)
					var sum count
					for _, c := range a.counts[learning : learning+measured] {
						sum.used, sum.refused = sum.used+c.used, sum.refused+c.refused
					}
					if sum.refused > 0 || sum.used < limit.Rate*measured*98/100 {
						t.Errorf("%d of %d used, %d refused", sum.used, limit.Rate*measured, sum.refused)
					}
					t.Log(a.counts[:learning+measured])
				})
			})
		}
	}
}

// An api decides about calls. These two are what the tests call, in simulations and over HTTP.
type api interface {
	call(now time.Time) verdict
}

// A verdict is what an api says of a call.
type verdict struct {
	ok         bool
	left       int64
	reset      time.Time // in whole seconds
	retryAfter time.Duration
}

// A count is the calls of a window or of a second.
type count struct{ used, refused int64 }

func (c count) String() string { return fmt.Sprintf("%d/%d", c.used, c.refused) }

// A fixedWindow is an api like that of GitHub.
type fixedWindow struct {
	quota  int64
	window time.Duration
	start  time.Time // of a window
	floor  bool      // reset is rounded down

	mu     sync.Mutex
	counts map[int64]count // by window
}

func (w *fixedWindow) call(now time.Time) verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := int64(now.Sub(w.start) / w.window)
	end := w.start.Add(time.Duration(n+1) * w.window)
	v := verdict{reset: end.Truncate(time.Second)}
	if !w.floor && v.reset.Before(end) {
		v.reset = v.reset.Add(time.Second)
	}
	if w.counts == nil {
		w.counts = make(map[int64]count)
	}
	c := w.counts[n]
	if v.ok = c.used < w.quota; v.ok {
		c.used++
	} else {
		c.refused++
		v.retryAfter = end.Sub(now)
	}
	w.counts[n] = c
	v.left = w.quota - c.used
	return v
}

// of returns the counts of n windows, beginning with the first one that had calls.
func (w *fixedWindow) of(n int64) (counts []count) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := int64(math.MaxInt64)
	for i := range w.counts {
		first = min(first, i)
	}
	for i := range n {
		counts = append(counts, w.counts[first+i])
	}
	return counts
}

// A bucketAPI is an api with a token bucket, like our own middleware.
type bucketAPI struct {
	rate, burst float64

	mu          sync.Mutex
	tokens      float64
	first, last time.Time
	counts      [100]count // by second
}

func (b *bucketAPI) call(now time.Time) verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first.IsZero() {
		b.first, b.last, b.tokens = now, now, b.burst
	}
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.last).Seconds())
	b.last = now
	v := verdict{ok: b.tokens >= 1}
	c := &b.counts[now.Sub(b.first)/time.Second]
	if v.ok {
		b.tokens--
		c.used++
	} else {
		c.refused++
		v.retryAfter = time.Duration((1 - b.tokens) / b.rate * float64(time.Second))
	}
	v.left = int64(b.tokens)
	v.reset = now.Add(time.Duration((b.burst - b.tokens) / b.rate * float64(time.Second)))
	v.reset = v.reset.Add(time.Second - 1).Truncate(time.Second)
	return v
}
