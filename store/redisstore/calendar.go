package redisstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A calendar knows which period of a quota it is. Redis's clock decides that, but a script knows no time zones. So a charge
// says which period it takes it to be. If that is wrong, the script charges nothing and answers its time, and the charge is
// sent again with the period of that time.
type calendar struct {
	ahead   atomic.Int64 // by how many microseconds Redis's clock is ahead of this process's, as far as is known
	periods sync.Map     // *period by *store.Period, because to find one takes a microsecond
}

// A period is one that was looked up last.
type period struct {
	from, until int64
	text        string // of the store.Period, as in the bucket
}

// at returns the period of a quota in which now is.
func (c *calendar) at(of *store.Period, now int64) *period {
	if known, ok := c.periods.Load(of); ok {
		if p := known.(*period); p.from <= now && now < p.until {
			return p
		}
	}
	p := &period{text: of.String()}
	p.from, p.until = of.Bounds(now)
	c.periods.Store(of, p)
	return p
}

// now returns the time of Redis in microseconds, as far as is known.
func (e *engine) now() int64 {
	if e.clock != nil {
		return e.clock().UnixMicro()
	}
	return time.Now().UnixMicro() + e.calendar.ahead.Load()
}

// mayBegin is how often a command is sent again because of a wrong period. The second time is needed only if a period ends
// meanwhile, or if the servers of a call have different times.
const mayBegin = 3

// renew gives the charges of c the periods of quotas in which now is, the time of Redis. It reports false if that was done
// too often.
func (e *engine) renew(c *command, now int64) bool {
	if c.renewed++; c.renewed > mayBegin {
		err := fmt.Errorf("redisstore: the period of a quota has ended, or has not begun, at %v", time.UnixMicro(now).UTC())
		c.finish(unsent{err})
		return false
	}
	e.calendar.ahead.Store(now - time.Now().UnixMicro())
	for i := range c.entries {
		for j := range c.entries[i].first.items {
			if t := &c.entries[i].first.items[j].term; t.period != nil {
				t.period = e.calendar.at(t.limit.Period, now)
			}
		}
	}
	return true
}
