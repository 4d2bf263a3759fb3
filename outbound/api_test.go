package outbound_test

import (
	"fmt"
	"math"
	"sync"
	"time"
)

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
