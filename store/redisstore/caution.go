package redisstore

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// After a call with several charges was refused, calls of its policies over several places are taken in turn for a
// period, which is minCaution or, if that is longer, cautionTimes as long as the refused call took. A call whose
// buckets happen to be in one place counts as well: the same client's next one may not be.
//
// The tokens that calls take at once before the first refusal is known are missing to others until they are given
// back, for about as long as such a call takes. Clients can cause that once in each period, in each process. So the
// period must be long against it, also where round trips are long, and where there are many processes.
const (
	minCaution   = 10 * time.Second
	cautionTimes = 500
)

// A caution remembers of which policies calls were refused lately, or failed. It does not
// remember keys, because clients choose them, nor combinations of policies, because several combinations may share
// the bucket that is to be protected.
type caution struct {
	start time.Time
	seed  maphash.Seed

	// until when calls are taken in turn, in nanoseconds since start, by the hash of the policy. Policies with the
	// same hash are taken in turn together, which is slower but not wrong.
	until [256]atomic.Int64
}

func (c *caution) init() { c.start, c.seed = time.Now(), maphash.MakeSeed() }

func (c *caution) of(i *item) *atomic.Int64 {
	return &c.until[maphash.String(c.seed, i.policy)%uint64(len(c.until))]
}

// due reports whether items are to be taken in turn.
func (c *caution) due(items []item) bool {
	now := int64(time.Since(c.start))
	for i := range items {
		if now < c.of(&items[i]).Load() {
			return true
		}
	}
	return false
}

// note remembers that a call of items was refused or failed, which took that long.
func (c *caution) note(items []item, took time.Duration) {
	until := int64(time.Since(c.start) + max(minCaution, cautionTimes*took))
	for i := range items {
		u := c.of(&items[i])
		for old := u.Load(); old < until && !u.CompareAndSwap(old, until); {
			old = u.Load()
		}
	}
}
