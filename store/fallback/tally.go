package fallback

import (
	"sync"
	"sync/atomic"
	"time"
)

// A tally counts calls that failed, to tell a primary that is away from one that has failed once. While none
// has failed lately, it costs a call no more than to see that.
type tally struct {
	most int // failures that are one too many

	troubled atomic.Bool // there are failures to count with
	mu       sync.Mutex
	since    time.Time // the first of them
	calls    int       // from it on
	failures int
	row      int       // failures since a call last succeeded
	rowSince time.Time // the first of those

	shut bool  // the primary is given up
	from int64 // when it was back last: a call that was sent before says nothing about it now
}

const (
	// tallied is how long failures are counted, if a call succeeds after that.
	tallied = time.Second

	// tolerance is how many calls there may be for each failure. A primary of several servers, of which one
	// is away, is given up.
	tolerance = 5

	// instant is how long it takes at least to hear from a server, in microseconds. An answer that comes sooner
	// was known here, such as a denial that is remembered, and does not tell that the server is well.
	instant = 10

	// silence is for how long no call succeeds with a primary that is away altogether, however many did before.
	// Those of one batch, or of one server of several, may fail in a row, too.
	silence = 100 * time.Millisecond
)

// succeeded counts a call that took some microseconds.
func (t *tally) succeeded(took int64) {
	if !t.troubled.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if took >= instant {
		t.calls++
		t.row = 0
	}
	if time.Since(t.since) > tallied {
		t.reset()
	}
}

// failed counts a call that was sent then and failed. It reports whether that counts, and whether it was one too many:
// then none counts until reopen. Callers that found the primary present may come here long after that.
func (t *tally) failed(sent int64) (counts, tooMany bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut || sent < t.from {
		return false, false
	}
	now := time.Now()
	if t.failures == 0 {
		t.since = now
		t.troubled.Store(true)
	}
	if t.row == 0 {
		t.rowSince = now
	}
	t.calls++
	t.failures++
	t.row++
	many := t.failures >= t.most && t.failures*tolerance >= t.calls
	silent := t.row >= t.most && now.Sub(t.rowSince) >= silence
	if !many && !silent {
		return true, false
	}
	t.reset()
	t.shut = true
	return true, true
}

// reopen counts again, calls that are sent from now on.
func (t *tally) reopen(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reset()
	t.shut, t.from = false, now
}

func (t *tally) reset() {
	t.calls, t.failures, t.row = 0, 0, 0
	t.troubled.Store(false)
}
