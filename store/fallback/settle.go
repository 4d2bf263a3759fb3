package fallback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// settle charges the primary for the tokens that the secondary has allowed. It makes a call for the bucket of each charge
// that has a cost. failed is that of callPrimary.
func (f *Store) settle(ctx context.Context, charges []store.Charge, states []store.State) (failed bool, err error) {
	if !f.used.any(f.now) {
		return false, nil
	}
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	for i := range charges {
		if charges[i].Cost <= 0 {
			continue
		}
		if failed, err = f.settleOne(ctx, &charges[i]); err != nil {
			return failed, fmt.Errorf("charging for an outage: %w", err)
		}
	}
	return false, nil
}

// settleOne charges the primary's bucket of c with the use of the bucket, or refunds a negative use. The use is removed
// before the call, so that it is settled once. It is put back only if the primary has certainly not been charged.
func (f *Store) settleOne(ctx context.Context, c *store.Charge) (failed bool, err error) {
	a := accountOf(c)
	u, found := f.used.take(a)
	if !found || u.expires <= f.now() {
		return false, nil
	}
	due := store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: u.tokens}
	if u.tokens > 0 {
		due.Settles = true
		due.Cost = min(u.tokens, f.missing(ctx, c, u))
	}
	if due.Cost == 0 {
		return false, nil
	}
	_, failed, err = f.callPrimary(ctx, []store.Charge{due}, make([]store.State, 1))
	switch {
	case errors.Is(err, store.ErrNotCharged):
		f.used.add(a, u, false, f.now())
	case err == nil && due.Settles:
		f.counts.charged.Add(due.Cost)
	}
	return failed, err
}

// missing returns how many tokens the bucket of c lacks after a use of it, rounded up. It is what the secondary's bucket lacks,
// with a bound, because that bucket refills only at this replica's share of the rate. The bound is what an empty bucket
// lacks after it has refilled at the whole rate since the last use.
func (f *Store) missing(ctx context.Context, c *store.Charge, u use) int64 {
	if c.Limit.IsQuota() { // which has not refilled since
		s, share, err := f.look(ctx, c, u.maxCost)
		if f.logSecondary(ctx, err); err != nil || s.Blocked { // a block hides the tokens
			return c.Limit.Capacity
		}
		return share.Capacity - s.Remaining
	}
	most := wholeTokens(c.Limit.Capacity-c.Limit.Advance(&c.Limit, bucket.Bucket{}, f.now()-u.last).Tokens, c.Limit.Unit)
	s, share, err := f.look(ctx, c, u.maxCost)
	if reset := s.ResetAfter.Microseconds(); err == nil && reset <= 2*bucket.MaxCredits/share.Refill { // or a block hides it
		return min(most, wholeTokens(reset*share.Refill, share.Unit))
	}
	f.logSecondary(ctx, err)
	return most
}

// wholeTokens returns credits in tokens of unit, rounded up.
func wholeTokens(credits, unit int64) int64 { return (credits + unit - 1) / unit }

// used has the tokens of each bucket that the secondary has allowed since the last settlement.
type used struct {
	maxKeys int

	until atomic.Int64 // when the last of the uses expires; 0 if there is no use
	mu    sync.Mutex
	of    map[account]use
}

// any reports whether there are uses. It drops all of them once the last has expired. Their buckets may never be charged
// again, and until then the charges of all other buckets take the lock.
func (all *used) any(clock func() int64) bool {
	until := all.until.Load()
	if until == 0 || clock() < until {
		return until != 0
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.until.CompareAndSwap(until, 0) {
		clear(all.of)
	}
	return false
}

// An account names a bucket.
type account struct{ policy, key string }

func accountOf(c *store.Charge) account { return account{c.Policy, c.Key} }

// A use is the tokens of one bucket that the secondary has allowed.
type use struct {
	tokens  int64 // without those that were refunded; negative if the primary must refund some
	maxCost int64 // the largest cost of a charge
	last    int64 // when the last of the tokens was used, in microseconds
	expires int64 // when both stores have refilled the bucket, so that the use makes no difference
}

// recordUse records that the secondary has carried out c, and answered state.
func (f *Store) recordUse(c *store.Charge, state *store.State) {
	now := f.now()
	expires := now + max(state.ResetAfter.Microseconds(), c.Limit.Fill())
	if c.Limit.IsQuota() { // it is settled in its period, or never
		unix := time.Now().UnixMicro()
		_, until := c.Limit.Period.Bounds(unix)
		expires = now + until - unix
	}
	f.used.add(accountOf(c), use{tokens: bounded(c.Cost), maxCost: burstFor(c), last: now, expires: expires}, isStandby(*c), now)
}

// add adds more to the use of a bucket. standby reports that more is a refund of tokens that the secondary has allowed.
func (all *used) add(a account, more use, standby bool, now int64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	u, found := all.of[a]
	if u.expires <= now {
		u = use{}
	}
	if standby {
		// A refund makes a use at most 0. Tokens that were settled, or never recorded, are not refunded to the primary: it
		// may have charged fewer, or none.
		more.tokens = -min(-more.tokens, max(0, u.tokens))
	}
	u = use{bounded(u.tokens + more.tokens), max(u.maxCost, more.maxCost), max(u.last, more.last), max(u.expires, more.expires)}
	switch {
	case u.tokens == 0:
		all.drop(a)
		return
	case !found:
		if len(all.of) >= all.maxKeys && !all.makeRoom(now) {
			return
		}
		a = account{strings.Clone(a.policy), strings.Clone(a.key)}
	}
	all.of[a] = u
	all.until.Store(max(all.until.Load(), u.expires))
}

// bounded bounds the tokens of a use. No bucket holds 2^53.
func bounded(tokens int64) int64 { return max(-1<<53, min(tokens, 1<<53)) }

// makeRoom looks at eight uses, and drops one that has expired. It drops no other: a client that makes up keys must not make
// others forget their use.
func (all *used) makeRoom(now int64) bool {
	looked := 0
	for a, u := range all.of {
		if u.expires <= now {
			all.drop(a)
			return true
		}
		if looked++; looked == 8 {
			break
		}
	}
	return false
}

// take removes and returns the use of a bucket.
func (all *used) take(a account) (u use, found bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if u, found = all.of[a]; found {
		all.drop(a)
	}
	return u, found
}

// maxCost returns the largest cost of a charge of c's bucket since the last settlement. c counts, too.
func (all *used) maxCost(c *store.Charge) int64 {
	if all.until.Load() == 0 {
		return burstFor(c)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return max(burstFor(c), all.of[accountOf(c)].maxCost)
}

// burstFor returns how many tokens a bucket must have room for, so that a full one allows c.
func burstFor(c *store.Charge) int64 {
	if c.Owed || c.Settles {
		return 1 // any bucket allows c
	}
	return max(1, c.Cost)
}

func (all *used) drop(a account) {
	delete(all.of, a)
	if len(all.of) == 0 {
		all.until.Store(0)
	}
}

// size returns how many buckets are not settled.
func (all *used) size() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.of)
}
