package fallback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// settle charges the primary for the tokens that the secondary has allowed. It makes a call for the bucket of each charge
// that has a cost. failed is that of ask.
func (f *Store) settle(ctx context.Context, charges []store.Charge, states []store.State) (failed bool, err error) {
	if !f.used.some(f.now) {
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
	one, found := f.used.take(a)
	if !found || one.void <= f.now() {
		return false, nil
	}
	due := store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: one.tokens}
	if one.tokens > 0 {
		due.Settles = true
		due.Cost = min(one.tokens, f.lacks(ctx, c, one))
	}
	if due.Cost == 0 {
		return false, nil
	}
	_, failed, err = f.ask(ctx, []store.Charge{due}, make([]store.State, 1))
	switch {
	case errors.Is(err, store.ErrNotCharged):
		f.used.add(a, one, false, f.now())
	case err == nil && due.Settles:
		f.counts.charged.Add(due.Cost)
	}
	return failed, err
}

// lacks returns how many tokens the bucket of c lacks after a use of it, rounded up. It is what the secondary's bucket lacks,
// with a bound, because that bucket refills only at this replica's share of the rate. The bound is what an empty bucket
// lacks after it has refilled at the whole rate since the last use.
func (f *Store) lacks(ctx context.Context, c *store.Charge, one use) int64 {
	empty := bucket.Bucket{Unit: c.Limit.Unit}
	most := up(c.Limit.Capacity-c.Limit.Advance(empty, f.now()-one.last).Tokens, c.Limit.Unit)
	s, share, err := f.look(ctx, c, one.dear)
	if reset := s.ResetAfter.Microseconds(); err == nil && reset <= 2*bucket.MaxCredits/share.Refill { // or a block hides it
		return min(most, up(reset*share.Refill, share.Unit))
	}
	f.note(ctx, err)
	return most
}

// up returns credits in tokens of unit, rounded up.
func up(credits, unit int64) int64 { return (credits + unit - 1) / unit }

// used has the tokens of each bucket that the secondary has allowed since the last settlement.
type used struct {
	most int

	until atomic.Int64 // the latest void of a use; 0 if there is no use
	mu    sync.Mutex
	of    map[account]use
}

// some reports whether there are uses. It drops all of them once the last is void. Their buckets may never be charged
// again, and until then the charges of all other buckets take the lock.
func (u *used) some(clock func() int64) bool {
	until := u.until.Load()
	if until == 0 || clock() < until {
		return until != 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.until.CompareAndSwap(until, 0) {
		clear(u.of)
	}
	return false
}

// An account names a bucket.
type account struct{ policy, key string }

func accountOf(c *store.Charge) account { return account{c.Policy, c.Key} }

// A use is the tokens of one bucket that the secondary has allowed.
type use struct {
	tokens int64 // without those that were refunded; negative if the primary must refund some
	dear   int64 // the largest cost of a charge
	last   int64 // when the last of the tokens was used, in microseconds
	void   int64 // when both stores have refilled the bucket, so that the use makes no difference
}

// use records that the secondary has carried out c, and answered state.
func (f *Store) use(c *store.Charge, state *store.State) {
	now := f.now()
	void := now + max(state.ResetAfter.Microseconds(), c.Limit.Fill())
	f.used.add(accountOf(c), use{tokens: within(c.Cost), dear: room(c), last: now, void: void}, isStandby(*c), now)
}

// add adds more to the use of a bucket. standby reports that more is a refund of tokens that the secondary has allowed.
func (u *used) add(a account, more use, standby bool, now int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one, found := u.of[a]
	if standby {
		// A refund makes a use at most 0. Tokens that were settled, or never recorded, are not refunded to the primary: it
		// may have charged fewer, or none.
		more.tokens = -min(-more.tokens, max(0, one.tokens))
	}
	one = use{within(one.tokens + more.tokens), max(one.dear, more.dear), max(one.last, more.last), max(one.void, more.void)}
	switch {
	case one.tokens == 0:
		u.drop(a)
		return
	case !found:
		if len(u.of) >= u.most && !u.makeRoom(now) {
			return
		}
		a = account{strings.Clone(a.policy), strings.Clone(a.key)}
	}
	u.of[a] = one
	u.until.Store(max(u.until.Load(), one.void))
}

// within bounds the tokens of a use. No bucket holds 2^53.
func within(tokens int64) int64 { return max(-1<<53, min(tokens, 1<<53)) }

// makeRoom looks at eight uses, and drops one that is void. It drops no other: a client that makes up keys must not make
// others forget their use.
func (u *used) makeRoom(now int64) bool {
	looked := 0
	for a, one := range u.of {
		if one.void <= now {
			u.drop(a)
			return true
		}
		if looked++; looked == 8 {
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

// dearest returns the largest cost of a charge of c's bucket since the last settlement. c counts, too.
func (u *used) dearest(c *store.Charge) int64 {
	if u.until.Load() == 0 {
		return room(c)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return max(room(c), u.of[accountOf(c)].dear)
}

// room returns how many tokens a bucket must have room for, so that a full one allows c.
func room(c *store.Charge) int64 {
	if c.Owed || c.Settles {
		return 1 // any bucket allows c
	}
	return max(1, c.Cost)
}

func (u *used) drop(a account) {
	if delete(u.of, a); len(u.of) == 0 {
		u.until.Store(0)
	}
}

// size returns how many buckets are not settled.
func (u *used) size() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.of)
}
