package fallback

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-tokenbucket/ratelimit/store"
)

// standIn answers with the secondary, under this replica's shares of the limits. What it allows is settled later if the
// primary has not been charged for the call.
func (f *Store) standIn(ctx context.Context, charges []store.Charge, states []store.State, uncharged bool) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	shares := slices.Clone(charges)
	for i := range shares {
		c := &shares[i]
		c.Limit = f.share(c, f.used.dearest(c))
		if isRefund(c) && !c.Standby {
			c.Cost = 0 // goes to the primary, which was charged
		}
	}
	ok, err := f.secondary.Take(ctx, shares, states)
	if err != nil {
		return false, err
	}
	f.counts.answered.Add(1)
	for i := range shares {
		c, s := &charges[i], &states[i]
		s.Degraded = true
		if s.Blocked {
			f.noteBlock(s.RetryAfter)
		}
		switch {
		case !ok || !s.Allowed || c.Cost == 0 || c.Settles:
		case c.Cost == store.Reset:
			f.used.take(accountOf(c))
		case uncharged || isRefund(c) && c.Standby:
			f.used.add(c, s, f.now())
		}
	}
	return ok, nil
}

// share returns this replica's part of c's limit, with room for a cost of dearest.
func (f *Store) share(c *store.Charge, dearest int64) store.Limit {
	if f.replicas.current != nil {
		f.replicas.refresh(f.now())
	}
	return c.Limit.Share(f.replicas.number.Load(), dearest)
}

// withoutStandby returns charges for the primary: it only looks at the buckets whose refunds go to the secondary.
func withoutStandby(charges []store.Charge) []store.Charge {
	for i := range charges {
		if charges[i].Standby && isRefund(&charges[i]) {
			charges = slices.Clone(charges)
			for ; i < len(charges); i++ {
				if c := &charges[i]; c.Standby && isRefund(c) {
					c.Cost = 0
				}
			}
			break
		}
	}
	return charges
}

// refundStandby carries out a refund of tokens that the secondary has allowed, after the outage.
func (f *Store) refundStandby(ctx context.Context, c *store.Charge) {
	one := *c
	one.Limit = f.share(c, f.used.dearest(c))
	s, err := f.askSecondary(ctx, one)
	if err != nil {
		f.failures.Log(ctx, fmt.Errorf("refunding a bucket of the secondary: %w", err))
		return
	}
	f.used.add(c, &s, f.now())
}

func isRefund(c *store.Charge) bool { return c.Cost < 0 && c.Cost != store.Reset }

// askSecondary calls the secondary for one bucket.
func (f *Store) askSecondary(ctx context.Context, c store.Charge) (store.State, error) {
	states := make([]store.State, 1)
	_, err := f.secondary.Take(ctx, []store.Charge{c}, states)
	return states[0], err
}

// look returns the state of the secondary's bucket of c, and the limit under which it is read.
func (f *Store) look(ctx context.Context, c *store.Charge, dearest int64) (store.State, store.Limit, error) {
	share := f.share(c, dearest)
	s, err := f.askSecondary(ctx, store.Charge{Policy: c.Policy, Key: c.Key, Limit: share})
	return s, share, err
}
