package fallback

import (
	"context"
	"slices"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// standIn answers with the secondary while the primary is unavailable. The primary is charged when it is back.
func (f *Store) standIn(ctx context.Context, o *outage, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	var few [4]*spending // on the stack
	spendings := few[:0]
	shares := charges
	f.replicas.refresh(f.known.now)
	divided := f.replicas.shares()
	if divided {
		shares = slices.Clone(charges)
	}
	changesBlocks := false
	for i := range charges {
		if isBlock(&charges[i]) {
			changesBlocks = true
			spendings = append(spendings, nil)
			continue
		}
		s, share, version := f.spent.open(&charges[i], o, &f.known)
		if divided {
			shares[i].Limit = share
		}
		if s.lowered.Load() < version {
			f.begin(ctx, s, version, &shares[i])
		}
		f.enforce(ctx, &charges[i])
		spendings = append(spendings, s)
	}
	if changesBlocks {
		f.blocks.applying.Lock()
		defer f.blocks.applying.Unlock()
	}
	ok, err := f.ask(ctx, shares, states)
	if !ok || err != nil {
		return false, err
	}
	for i, s := range spendings {
		switch c := &charges[i]; {
		case s == nil:
			f.spent.block(c, f.blocks.change(c))
		case !states[i].Allowed || c.Cost == 0:
		case c.Cost == store.Reset:
			f.reset(s, c)
		default:
			f.spent.add(s, c)
			f.noteLock(s, c, &states[i])
		}
	}
	if f.away.Load() == nil {
		f.settleLate()
	}
	return true, nil
}

// standInOnce answers a call that failed in the primary with the secondary. The primary may have carried it out, so
// it is not charged for it again.
func (f *Store) standInOnce(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	f.replicas.refresh(f.known.now)
	shares := f.shares(charges)
	for i := range shares {
		if err := f.lower(ctx, &shares[i], f.known.credits(&charges[i])); err != nil {
			return false, err
		}
		f.enforce(ctx, &charges[i])
		shares[i].Cost = max(0, shares[i].Cost) // what primary may have been given back is not here, too
		shares[i].Block = 0                     // nor is a lock that primary may have
	}
	return f.ask(ctx, shares, states)
}

// ask calls the secondary.
func (f *Store) ask(ctx context.Context, shares []store.Charge, states []store.State) (bool, error) {
	ok, err := f.secondary.Take(ctx, shares, states)
	if err != nil {
		return false, err
	}
	f.counts.answered.Add(1)
	for i := range shares {
		states[i].Degraded = true
	}
	return ok, nil
}

// shares returns a copy of charges under this replica's shares of their limits.
func (f *Store) shares(charges []store.Charge) []store.Charge {
	shares, n := slices.Clone(charges), f.replicas.inForce.Load()
	for i := range shares {
		c := &shares[i]
		c.Limit = shareOf(c.Limit, n, roomOf(c))
	}
	return shares
}

// shareOf returns a limit divided by replicas, with room for at least that many whole tokens.
func shareOf(limit store.Limit, replicas, room int64) store.Limit {
	if replicas == 1 {
		return limit
	}
	return store.Limit(bucket.Limit(limit).Share(replicas, room))
}

// roomOf returns how many whole tokens a share must have room for, so that c is allowed by a full one.
func roomOf(c *store.Charge) int64 {
	if settles(c) {
		return 1 // of which it needs none
	}
	return max(1, c.Cost)
}

// settles reports whether c corrects the cost of an earlier charge, as a refund or an Owed charge.
func settles(c *store.Charge) bool { return c.Cost < 0 || c.Cost > 0 && c.Owed }

// begin lowers the secondary's bucket of share to what s holds, once for each version of s. Clients that had no
// tokens before an outage must not find a full bucket, and a share that grows must not be full at once. If begin
// fails, the next call tries again.
func (f *Store) begin(ctx context.Context, s *spending, version int64, share *store.Charge) {
	s.lowering.Lock()
	defer s.lowering.Unlock()
	if s.lowered.Load() >= version {
		return
	}
	if f.lower(ctx, share, f.spent.held(s, share.Limit)) == nil {
		s.lowered.Store(version)
	}
}

// lower lowers the secondary's bucket of share to credits, if it holds more.
func (f *Store) lower(ctx context.Context, share *store.Charge, credits int64) error {
	c, states := store.Charge{Policy: share.Policy, Key: share.Key, Limit: share.Limit}, make([]store.State, 1)
	if _, err := f.secondary.Take(ctx, []store.Charge{c}, states); err != nil {
		return err
	}
	_, holds := infer.Credits(&c, &states[0])
	if states[0].Blocked { // which hides the tokens
		holds = share.Limit.Capacity
		if b, err := store.Inspect(ctx, f.secondary, c.Policy, c.Key); err == nil {
			b.Blocked = 0
			state := b.State(share.Limit)
			_, holds = infer.Credits(&c, &state)
		}
	}
	unit := share.Limit.Unit
	surplus := floor(holds, unit) - floor(credits, unit)
	if surplus <= 0 {
		return nil
	}
	c.Cost, c.Owed = surplus, true
	_, err := f.secondary.Take(ctx, []store.Charge{c}, states)
	return err
}

// floor returns credits in whole tokens, rounded down, also in debt.
func floor(credits, unit int64) int64 {
	tokens := credits / unit
	if tokens*unit > credits {
		tokens--
	}
	return tokens
}
