package fallback

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A tally counts failed calls. It distinguishes a primary that is unavailable from one that has failed once.
// Without recent failures it costs a call only one atomic load.
type tally struct {
	maxFailures int // so many failures are too many

	troubled atomic.Bool // there are recent failures
	mu       sync.Mutex
	since    time.Time // the first recent failure
	calls    int       // since then
	failures int
	row      int       // failures since a call last succeeded
	rowSince time.Time // the first failure of the row

	givenUp bool  // the primary is given up
	from    int64 // when the primary was last back; calls that were sent before do not count
}

const (
	// tallied is how long failures are recent. The first success after that forgets them.
	tallied = time.Second

	// A primary is given up if at least one of tolerance calls fails. So a primary of several servers is given up when
	// one of them is unavailable.
	tolerance = 5

	// instant is the minimum time of an answer from a server, in microseconds. A faster answer, such as a remembered
	// denial, was made in this process, and does not show that the server works.
	instant = 10

	// If a primary has served many calls just before, it is given up after all calls have failed for silence. A shorter
	// row of failures may be of one batch, or of one server of several.
	silence = 100 * time.Millisecond
)

// succeeded counts a call that took that many microseconds.
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

// failed counts a failed call that was sent at that time. counts reports whether the failure counts, and tooMany whether
// the primary must be given up. After that, no failure counts until reopen: calls that were sent before may fail much
// later.
func (t *tally) failed(sent int64) (counts, tooMany bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.givenUp || sent < t.from {
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
	many := t.failures >= t.maxFailures && t.failures*tolerance >= t.calls
	silent := t.row >= t.maxFailures && now.Sub(t.rowSince) >= silence
	if !many && !silent {
		return true, false
	}
	t.reset()
	t.givenUp = true
	return true, true
}

// reopen counts again, for calls sent from now on.
func (t *tally) reopen(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reset()
	t.givenUp, t.from = false, now
}

func (t *tally) reset() {
	t.calls, t.failures, t.row = 0, 0, 0
	t.troubled.Store(false)
}

// errSlow is the reason for giving up a primary that answers too late.
var errSlow = errors.New("fallback: the primary is slow")

// judge counts a call of the primary that was sent at that time and ended with err. failed is that of callPrimary. A late answer
// counts as a failure, but failed is false, because there is an answer. It does not count while this process lacks CPU
// time.
func (f *Store) judge(ctx context.Context, err error, charges []store.Charge, sent int64) (failed bool) {
	took, reason := f.now()-sent, err
	switch slow := took >= f.slow.Microseconds(); {
	case err == nil && !slow:
		f.tally.succeeded(took)
		return false
	case err == nil && starved.Since(time.Now()).Busy(f.slow), err != nil && blameless(ctx, err, slow):
		return false
	case errors.Is(err, store.ErrNoBucket): // the primary works for other keys
		f.failures.Log(ctx, err)
		return true
	case err == nil:
		reason = errSlow
	}
	counts, tooMany := f.tally.failed(sent)
	if tooMany {
		f.giveUp(reason, charges) // before the Logger, which may hang
	}
	if counts {
		f.failures.Log(ctx, reason)
	}
	return err != nil
}

// blameless reports whether err says nothing about the primary. The call was invalid or is not supported, this process is
// overloaded, the caller left, or the caller gave the primary less time than Slow.
func blameless(ctx context.Context, err error, slow bool) bool {
	deadline, limited := ctx.Deadline() // a primary may notice the end of ctx slightly before ctx does
	over := ctx.Err() != nil || limited && !time.Now().Before(deadline)
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, store.ErrInvalidCall) || errors.Is(err, store.ErrOverloaded) ||
		errors.Is(ctx.Err(), context.Canceled) || over && !slow
}
