package fallback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// An unsteadiness logs that the primary is given up again and again, for example because its round trip is near
// Slow. The lines of single outages are easily overlooked.
type unsteadiness struct {
	mu    sync.Mutex
	times int
	since time.Time // the first of them
}

const (
	// unsteadyTimes is how often a primary must be given up within unsteadyFor to be logged.
	unsteadyTimes = 3

	// unsteadyFor is also the time between two lines.
	unsteadyFor = time.Minute
)

// givenUp records that the primary was given up for reason, after a call that took that long.
func (u *unsteadiness) givenUp(log *slog.Logger, reason error, took, slow time.Duration) {
	u.mu.Lock()
	now := time.Now()
	if u.times == 0 || now.Sub(u.since) > unsteadyFor {
		u.times, u.since = 0, now
	}
	u.times++
	times := u.times
	u.mu.Unlock()
	if times != unsteadyTimes { // so that there is one line in each unsteadyFor
		return
	}
	attrs := []any{"times", times, "within", now.Sub(u.since), "error", reason, "took", took, "Slow", slow}
	if isSlowness(reason) {
		log.Warn("fallback: the primary is given up again and again for slowness: its round trip is near fallback.Config.Slow", attrs...)
	} else {
		log.Warn("fallback: the primary is given up again and again", attrs...)
	}
}

// stillAway logs, once every unsteadyFor, that a probe failed for reason. Only one probe at a time calls it.
func (o *outage) stillAway(log *slog.Logger, reason error, slow time.Duration) {
	now := time.Now()
	if last := o.told; now.Sub(last) < unsteadyFor {
		return
	}
	o.told = now
	if errors.Is(reason, context.DeadlineExceeded) {
		reason = fmt.Errorf("a probe was not answered within fallback.Config.Slow %v: %w", slow, reason)
	}
	log.Warn("fallback: the primary is still unavailable, and the secondary answers", "for", now.Sub(o.since), "error", reason)
}

// isSlowness reports whether a primary was given up because it took too long.
func isSlowness(reason error) bool {
	return errors.Is(reason, errSlow) || errors.Is(reason, context.DeadlineExceeded)
}
