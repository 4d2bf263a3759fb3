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

// settle charges the primary for what the secondary has allowed of the buckets that charges cost something. A call of the
// primary for each of them comes before the charges. It reports whether the primary has failed, as ask does.
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

// settleOne charges the primary's bucket of c with what was used, or refunds it. The use is taken before the call, so that
// it is settled once. It is put back only if the primary has certainly not been charged.
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

// lacks returns how many tokens the bucket of c lacks after a use of it, rounded up. The secondary's bucket knows it, but what
// this replica's part of the rate has not refilled there since then, the whole rate may have refilled in the primary.
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

// used is what the secondary has allowed of each bucket since the last settlement.
type used struct {
	most int

	until atomic.Int64 // when the last of them makes no difference any more; 0 if there is none
	mu    sync.Mutex
	of    map[account]use
}

// some reports whether there are uses. It drops them when none makes a difference any more: their buckets may never be
// charged again, and all others would wait for the lock.
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

// A use is what the secondary has allowed of one bucket.
type use struct {
	tokens int64 // less those that were refunded; negative if a refund is due to the primary
	dear   int64 // the largest cost
	last   int64 // when the last of them was used, in microseconds
	void   int64 // when both stores have refilled the bucket, if nobody charges it
}

// use records that the secondary has carried out c, with state as the answer.
func (f *Store) use(c *store.Charge, state *store.State) {
	now := f.now()
	void := now + max(state.ResetAfter.Microseconds(), c.Limit.Fill())
	f.used.add(accountOf(c), use{tokens: within(c.Cost), dear: room(c), last: now, void: void}, isStandby(*c), now)
}

// add adds to what was used of a bucket. standby says that more is a refund of what the secondary has allowed.
func (u *used) add(a account, more use, standby bool, now int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one, found := u.of[a]
	if standby {
		// What was settled, or never recorded, is not refunded to the primary: it may have charged less, or nothing.
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

// within bounds the tokens of a use: no bucket holds as many.
func within(tokens int64) int64 { return max(-1<<53, min(tokens, 1<<53)) }

// makeRoom drops one of eight uses that makes no difference any more. It drops no other: clients can make up keys.
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

// dearest returns the largest cost of c's bucket since the last settlement, with that of c.
func (u *used) dearest(c *store.Charge) int64 {
	if u.until.Load() == 0 {
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
