package fallback

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// settle charges the primary for what the secondary has allowed of the buckets that charges cost something. A call of the
// primary for each of them comes before the charges. It reports whether the primary has failed, as ask does.
func (f *Store) settle(ctx context.Context, charges []store.Charge, states []store.State) (failed bool, err error) {
	if f.used.size.Load() == 0 {
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
	if !found {
		return false, nil
	}
	due := store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit, Cost: one.tokens}
	if one.tokens > 0 {
		due.Settles = true
		due.Cost = min(one.tokens, f.missing(ctx, c, one.dear), f.unrefilled(c.Limit, one.last))
	}
	if due.Cost == 0 {
		return false, nil
	}
	_, failed, err = f.ask(ctx, []store.Charge{due}, make([]store.State, 1))
	switch {
	case errors.Is(err, store.ErrNotCharged):
		f.used.putBack(a, one)
	case err == nil && due.Settles:
		f.counts.charged.Add(due.Cost)
	}
	return failed, err
}

// missing returns how many tokens the secondary's bucket of c lacks, rounded up. What it has refilled since, the primary's
// has refilled, too.
func (f *Store) missing(ctx context.Context, c *store.Charge, dearest int64) int64 {
	s, share, err := f.look(ctx, c, dearest)
	if err != nil {
		f.failures.Log(ctx, fmt.Errorf("looking at a bucket of the secondary: %w", err))
		return math.MaxInt64
	}
	if s.ResetAfter.Microseconds() > 2*bucket.MaxCredits/share.Refill { // a block, or a debt that no settlement pays
		return math.MaxInt64
	}
	return up(s.ResetAfter.Microseconds()*share.Refill, share.Unit)
}

// unrefilled returns how many tokens a bucket lacks that was empty at last, rounded up.
func (f *Store) unrefilled(l store.Limit, last int64) int64 {
	empty := bucket.Bucket{Unit: l.Unit}
	return up(l.Capacity-l.Advance(empty, f.now()-last).Tokens, l.Unit)
}

// up returns credits in tokens of unit, rounded up.
func up(credits, unit int64) int64 { return (credits + unit - 1) / unit }
