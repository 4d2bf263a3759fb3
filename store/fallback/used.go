package fallback

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/store"
)

// used is what the secondary has allowed of each bucket since the last settlement.
type used struct {
	most int

	size atomic.Int64 // of the map, for calls that need not wait for the lock
	mu   sync.Mutex
	of   map[account]use
}

// An account names a bucket.
type account struct{ policy, key string }

func accountOf(c *store.Charge) account { return account{c.Policy, c.Key} }

// A use is what the secondary has allowed of one bucket.
type use struct {
	tokens int64 // less those that were refunded; negative if a refund is due to the primary
	dear   int64 // the largest cost
	last   int64 // when the last of them was used, in microseconds
	void   int64 // when both stores have refilled the bucket, if nobody charges it
}

const (
	// maxTokens bounds the tokens of a use, in both directions: no bucket holds as many.
	maxTokens = 1 << 53

	// looked is how many uses are looked at to make room for another one.
	looked = 8
)

// add records that the secondary has carried out c at now, with state as the answer.
func (u *used) add(c *store.Charge, state *store.State, now int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := accountOf(c)
	one, found := u.of[a]
	one.tokens = max(-maxTokens, min(one.tokens+max(-maxTokens, min(c.Cost, maxTokens)), maxTokens))
	one.dear = max(one.dear, room(c))
	one.last = now
	one.void = max(one.void, now+max(state.ResetAfter.Microseconds(), c.Limit.Fill()))
	switch {
	case one.tokens == 0:
		u.drop(a)
		return
	case !found:
		if len(u.of) >= u.most && !u.makeRoom(now) {
			return
		}
		a = account{strings.Clone(c.Policy), strings.Clone(c.Key)}
	}
	u.put(a, one)
}

// makeRoom drops a use that makes no difference any more, if it finds one. It drops no other: clients can make up keys.
func (u *used) makeRoom(now int64) bool {
	left := looked
	for a, one := range u.of {
		if one.void <= now {
			u.drop(a)
			return true
		}
		if left--; left == 0 {
			break
		}
	}
	return false
}

// take removes and returns the use of a bucket.
func (u *used) take(a account) (one use, found bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one, found = u.of[a]; found {
		u.drop(a)
	}
	return one, found
}

// putBack restores a use that was taken, and not settled.
func (u *used) putBack(a account, one use) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since := u.of[a]
	one.tokens += since.tokens
	one.dear, one.last, one.void = max(one.dear, since.dear), max(one.last, since.last), max(one.void, since.void)
	u.put(account{strings.Clone(a.policy), strings.Clone(a.key)}, one)
}

// dearest returns the largest cost of c's bucket since the last settlement, with that of c.
func (u *used) dearest(c *store.Charge) int64 {
	if u.size.Load() == 0 {
		return room(c)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return max(room(c), u.of[accountOf(c)].dear)
}

// room returns how many tokens a bucket must have room for, so that c is allowed by a full one.
func room(c *store.Charge) int64 {
	if c.Owed || c.Settles {
		return 1 // of which it needs none
	}
	return max(1, c.Cost)
}

func (u *used) put(a account, one use) {
	u.of[a] = one
	u.size.Store(int64(len(u.of)))
}

func (u *used) drop(a account) {
	delete(u.of, a)
	u.size.Store(int64(len(u.of)))
}
