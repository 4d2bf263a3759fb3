package fallback

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/store"
)

// answer answers a call with the secondary.
func (f *Store) answer(ctx context.Context, charges []store.Charge, states []store.State, uncharged bool) (bool, error) {
	ok, err := f.standIn(ctx, charges, states, uncharged)
	if err == nil {
		f.counts.answered.Add(1)
	}
	return ok, err
}

// standIn charges the secondary, under this replica's shares of the limits. If uncharged is true, the primary was not
// charged for the call, and the tokens are settled later.
func (f *Store) standIn(ctx context.Context, charges []store.Charge, states []store.State, uncharged bool) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	shares := slices.Clone(charges)
	for i := range shares {
		c := &shares[i]
		c.Limit = f.share(c, f.used.maxCost(c))
		if isRefund(*c) && !c.Standby {
			c.Cost = 0 // the refund goes to the primary, which was charged
		}
	}
	ok, err := f.secondary.Take(ctx, shares, states)
	if err != nil {
		return false, err
	}
	for i := range shares {
		c, s := &charges[i], &states[i]
		s.Degraded = true
		if s.Blocked {
			f.noteBlock(min(s.RetryAfter, s.ResetAfter)) // both are at least the block; one is Never for a cost above the burst
		}
		switch {
		case !ok || !s.Allowed || c.Cost == 0 || c.Settles || c.Limit.IsConcurrency():
		case c.Cost == store.Reset:
			f.used.take(accountOf(c))
		case uncharged || isStandby(*c):
			f.recordUse(c, s)
		}
	}
	return ok, nil
}

// share returns this replica's part of c's limit, with room for a cost of maxCost.
func (f *Store) share(c *store.Charge, maxCost int64) store.Limit {
	f.replicas.refresh(f.now)
	return c.Limit.Share(f.replicas.number.Load(), maxCost)
}

// replicas is the number by which limits are divided.
type replicas struct {
	current func() int // nil: the number never changes
	number  atomic.Int64
	due     atomic.Int64 // when current is called again, in microseconds
}

// refresh calls ReplicasFunc if the last call was 100 ms ago by the clock.
func (r *replicas) refresh(clock func() int64) {
	if r.current == nil {
		return
	}
	if due, now := r.due.Load(), clock(); now >= due && r.due.CompareAndSwap(due, now+100_000) {
		r.number.Store(int64(max(1, r.current())))
	}
}

// withoutStandby returns charges for the primary. The cost of Standby refunds is 0 in them, because these go to the
// secondary.
func withoutStandby(charges []store.Charge) []store.Charge {
	if !slices.ContainsFunc(charges, isStandby) {
		return charges
	}
	charges = slices.Clone(charges)
	for i := range charges {
		if isStandby(charges[i]) {
			charges[i].Cost = 0
		}
	}
	return charges
}

// logSecondary logs an error of the secondary while the primary answers.
func (f *Store) logSecondary(ctx context.Context, err error) {
	if err != nil {
		f.failures.Log(ctx, fmt.Errorf("the secondary failed: %w", err))
	}
}

func isReset(c store.Charge) bool   { return c.Cost == store.Reset }
func isRefund(c store.Charge) bool  { return c.Cost < 0 && !isReset(c) }
func isStandby(c store.Charge) bool { return c.Standby && isRefund(c) }

// callSecondary calls the secondary for one bucket.
func (f *Store) callSecondary(ctx context.Context, c store.Charge) (store.State, error) {
	call := calls.Get().(*call)
	defer calls.Put(call)
	call.charge[0] = c
	_, err := f.secondary.Take(ctx, call.charge[:], call.state[:])
	return call.state[0], err
}

// A call holds the arguments of a call for one bucket. Each denial of a flood makes one, so calls are pooled.
type call struct {
	charge [1]store.Charge
	state  [1]store.State
}

var calls = sync.Pool{New: func() any { return new(call) }}

// look returns the state of the secondary's bucket of c, and the limit under which it is read.
func (f *Store) look(ctx context.Context, c *store.Charge, maxCost int64) (store.State, store.Limit, error) {
	share := f.share(c, maxCost)
	s, err := f.callSecondary(ctx, store.Charge{Policy: c.Policy, Key: c.Key, Limit: share})
	return s, share, err
}
