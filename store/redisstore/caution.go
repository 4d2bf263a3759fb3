package redisstore

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// After a call with several charges was refused, calls of its policies over several places are taken in turn. This
// lasts for minCaution, or for cautionTimes the time of the refused call, whichever is longer. A refused call whose
// buckets are all in one place counts, too: the next call of the same client may be over several.
//
// Calls that are taken at once can take tokens before the first refusal is known. Other callers miss these tokens
// until they are given back, for about the time of such a call. Clients can cause that once in each period and
// process. So the period must be much longer than a call, also with slow round trips and many processes.
const (
	minCaution   = 10 * time.Second
	cautionTimes = 500
)

// A caution remembers which policies had calls that were refused or failed. It does not remember keys, because
// clients choose them. It does not remember combinations of policies either, because several of them may share the
// bucket that is to be protected.
type caution struct {
	start time.Time
	seed  maphash.Seed

	// The end of the period for each hash of a policy, in nanoseconds since start. Policies with the same hash are
	// taken in turn together, which is slower but not wrong.
	until [256]atomic.Int64
}

func (c *caution) init() { c.start, c.seed = time.Now(), maphash.MakeSeed() }

func (c *caution) of(i *item) *atomic.Int64 {
	return &c.until[maphash.String(c.seed, i.policy)%uint64(len(c.until))]
}

// due reports whether items must be taken in turn.
func (c *caution) due(items []item) bool {
	now := int64(time.Since(c.start))
	for i := range items {
		if now < c.of(&items[i]).Load() {
			return true
		}
	}
	return false
}

// note remembers that a call of items, which took this long, was refused or failed.
func (c *caution) note(items []item, took time.Duration) {
	until := int64(time.Since(c.start) + max(minCaution, cautionTimes*took))
	for i := range items {
		u := c.of(&items[i])
		for old := u.Load(); old < until && !u.CompareAndSwap(old, until); {
			old = u.Load()
		}
	}
}
