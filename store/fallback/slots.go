package fallback

import (
	"context"
	"maps"
	"slices"

	"github.com/go-tokenbucket/ratelimit/store"
)

// release carries out a call that releases slots. A release goes to the store that has given the slot, also while the primary
// is unavailable: it waits for no server. The rest of the call goes first. If it fails, the slots are released nevertheless,
// because nobody would release them later.
func (f *Store) release(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	var err error
	if rest := slices.Clone(charges); slices.ContainsFunc(rest, func(c store.Charge) bool { return !isRelease(c) }) {
		for i := range rest {
			if isRelease(rest[i]) {
				rest[i].Cost = 0
			}
		}
		var ok bool
		if ok, err = f.Take(ctx, rest, states); !ok && err == nil {
			return false, nil
		}
	}
	for i := range charges {
		c, from := charges[i], f.primary
		if !isRelease(c) {
			continue
		}
		if c.Standby {
			c.Limit, from = f.share(&c, 1), f.secondary
		}
		if _, failed := from.Take(ctx, []store.Charge{c}, states[i:i+1]); failed != nil {
			err = failed
		}
		states[i].Degraded = c.Standby
	}
	return err == nil, err
}

func isRelease(c store.Charge) bool { return c.Limit.IsConcurrency() && isRefund(c) }

// slotStats adds the slots of the secondary to those of the primary.
func slotStats(primary, secondary *store.SlotStats) *store.SlotStats {
	switch {
	case primary == nil:
		return secondary
	case secondary == nil:
		return primary
	}
	sum := &store.SlotStats{Held: maps.Clone(primary.Held), Lost: maps.Clone(primary.Lost)}
	for policy, n := range secondary.Held {
		sum.Held[policy] += n
	}
	for policy, n := range secondary.Lost {
		sum.Lost[policy] += n
	}
	return sum
}
