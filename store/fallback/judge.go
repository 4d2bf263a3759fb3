package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
	"github.com/go-tokenbucket/ratelimit/store"
)

// errSlow is the reason for giving up a primary that answers too late.
var errSlow = errors.New("fallback: the primary is slow")

// judge counts a call of the primary that was sent at that time and ended with err. It reports whether the primary has
// failed. A late answer counts as a failure, but is an answer. It does not count while this process lacks CPU time.
func (f *Store) judge(ctx context.Context, err error, charges []store.Charge, sent int64) (failed bool) {
	slow := f.now()-sent >= f.slow.Microseconds()
	switch {
	case err == nil && !slow:
		f.tally.succeeded(f.now() - sent)
	case err == nil:
		if !starved.Since(time.Now()).Busy(f.slow) {
			f.failed(ctx, errSlow, charges, sent)
		}
	case !blameless(ctx, err, slow):
		f.failed(ctx, err, charges, sent)
		return true
	}
	return false
}

// blameless reports whether err says nothing about the primary: the primary does not have this, the call was invalid,
// this process is overloaded, or the caller left or gave the primary less time than Slow.
func blameless(ctx context.Context, err error, slow bool) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, store.ErrInvalidCall) || errors.Is(err, store.ErrOverloaded) ||
		errors.Is(ctx.Err(), context.Canceled) || !slow && over(ctx)
}

// over reports whether the deadline of ctx has passed. A primary may notice that slightly before ctx does.
func over(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

// failed counts a call that was sent at that time and failed for reason, or was slow.
func (f *Store) failed(ctx context.Context, reason error, charges []store.Charge, sent int64) {
	counts, tooMany := f.tally.failed(sent)
	if tooMany {
		defer f.giveUp(reason, charges, sent) // also if the Logger panics, or no failure would count any more
	}
	if counts {
		f.failures.Log(ctx, reason)
	}
}
