package store

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// known is what the primary said that buckets hold: a table with a place for each hash, where those that were
// charged last overwrite others. Keeping it must not cost a call more than some nanoseconds, so a place has
// neither lock nor name, only 64 bits that say whose it is.
type known struct {
	seed   maphash.Seed
	start  time.Time
	places []place
}

// A place holds when one bucket is full if nobody charges it, which with its limit is what it holds at any time
// before.
type place struct {
	whose atomic.Uint64 // 0: nobody's
	full  atomic.Int64  // in microseconds since start
}

func newKnown(places int) known {
	return known{
		seed:   maphash.MakeSeed(),
		start:  time.Now(),
		places: make([]place, 1<<bits.Len(uint(places-1))),
	}
}

func (k *known) find(c *Charge) (*place, uint64) {
	hash := 31*maphash.String(k.seed, c.Policy) + maphash.String(k.seed, c.Key)
	p := &k.places[hash&uint64(len(k.places)-1)]
	// Under another limit, the same time to full is something else.
	return p, hash ^ uint64(c.Limit.Unit)<<20 ^ uint64(c.Limit.Capacity) ^ bits.RotateLeft64(uint64(c.Limit.Refill), 40) | 1
}

// now returns the time in microseconds.
func (k *known) now() int64 { return time.Since(k.start).Microseconds() }

// keep remembers what the primary answered now. Two calls that use a place at once may mix up its bucket's full with
// that of another, which then begins an outage too full or too empty.
func (k *known) keep(charges []Charge, states []State, now int64) {
	for i := range charges {
		if states[i].Degraded {
			continue
		}
		p, whose := k.find(&charges[i])
		full := now + states[i].ResetAfter.Microseconds()
		if p.whose.Load() == whose {
			p.full.Store(full)
			continue
		}
		p.whose.Store(0)
		p.full.Store(full)
		p.whose.Store(whose)
	}
}

// credits returns how many credits c's bucket holds by now if nobody else has charged it, as many as fill it
// if nothing is known.
func (k *known) credits(c *Charge) int64 {
	p, whose := k.find(c)
	full := p.full.Load()
	if p.whose.Load() != whose {
		return c.Limit.Capacity
	}
	return creditsOf(c.Limit, full-k.now())
}

// creditsOf returns how many credits a bucket of l holds that is full in some microseconds, less than none in debt.
func creditsOf(l Limit, full int64) int64 {
	return bucket.Limit(l).Charge(l.Capacity, l.Refill, max(0, full))
}
