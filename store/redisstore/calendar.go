package redisstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A calendar knows which period of a quota it is. Redis's clock decides that, but a script knows no time zones. So a charge
// says which period it takes it to be, and the script charges nothing if that is wrong, and answers its time.
type calendar struct {
	ahead   atomic.Int64 // by how many microseconds Redis's clock is ahead of this process's, as far as is known
	periods sync.Map     // *period by store.Period, because to find one takes a microsecond
}

// A period is one that was looked up last.
type period struct{ from, until int64 }

// periodOf returns the period of l, a quota, in which Redis's clock is.
func (e *engine) periodOf(l store.Limit) (from, until int64) {
	now := e.now()
	if known, ok := e.calendar.periods.Load(l.Period); ok {
		if p := known.(*period); p.from <= now && now < p.until {
			return p.from, p.until
		}
	}
	p := new(period)
	p.from, p.until = l.Period.Bounds(now)
	e.calendar.periods.Store(l.Period, p)
	return p.from, p.until
}

// now returns the time of Redis in microseconds, as far as is known.
func (e *engine) now() int64 {
	if e.clock != nil {
		return e.clock().UnixMicro()
	}
	return time.Now().UnixMicro() + e.calendar.ahead.Load()
}

// A wrongPeriod is the error of a call that was not carried out, because Redis's clock is not in the period of a quota.
type wrongPeriod struct{ now int64 }

func (w *wrongPeriod) Error() string {
	return fmt.Sprintf("redisstore: the period of a quota has ended, or has not begun, at %v", time.UnixMicro(w.now).UTC())
}

// mayBegin is how often a call is sent whose period is wrong. The second time fails only if a period ends meanwhile, or if the
// servers of the call have different times.
const mayBegin = 3

// inPeriod calls f, and again if Redis's clock is not in the period of a quota.
func (e *engine) inPeriod(f func() (bool, error)) (ok bool, err error) {
	for range mayBegin {
		var wrong *wrongPeriod
		if ok, err = f(); err == nil || !errors.As(err, &wrong) {
			return ok, err
		}
		e.calendar.ahead.Store(wrong.now - time.Now().UnixMicro())
	}
	return false, fmt.Errorf("%w: %w", store.ErrNotCharged, err)
}

// outside returns the error of c if Redis's clock is not in the period of one of its quotas.
func (c *call) outside() error {
	if c.reply[0] == -2 {
		return &wrongPeriod{c.reply[1]}
	}
	return nil
}
