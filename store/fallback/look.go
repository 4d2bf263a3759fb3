package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/internal/readonly"
	"github.com/go-tokenbucket/ratelimit/store"
)

// look returns the bucket that the secondary would charge for c, under the share of c's limit. It leaves the secondary
// and the ledger as they are. During a call that the primary may have carried out, o is nil.
func (f *Store) look(ctx context.Context, o *outage, c *store.Charge) (b store.Bucket, err error) {
	if c.Limit == (store.Limit{}) { // nothing is to be charged
		if b, err = store.Inspect(ctx, f.secondary, c.Policy, c.Key); err == nil {
			b.Degraded = true
			b.Blocked, b.Locked = f.blocks.left(c, b)
		}
		return b, err
	}
	f.replicas.refresh(f.known.now)
	share, most, lower := shareOf(c.Limit, f.replicas.inForce.Load(), roomOf(c)), f.known.credits(c), true
	if o != nil {
		share, most, lower = f.spent.look(c, o, &f.known)
	}
	look := store.Charge{Policy: c.Policy, Key: c.Key, Limit: share}
	if b, err = f.inspectOrLook(ctx, &look); err != nil {
		return b, err
	}
	l := bucket.Limit(share)
	kept := bucket.Bucket{Tokens: b.Credits, Unit: b.Limit.Unit} // none, if b is none
	b.Credits = l.Advance(kept, b.Age.Microseconds()).Tokens
	b.Limit, b.Age, b.Degraded = share, 0, true
	b.Blocked, b.Locked = f.blocks.left(c, b)
	if lower {
		state := look.State(b.Credits, true)
		_, holds := infer.Credits(&look, &state)
		if surplus := floor(holds, share.Unit) - floor(most, share.Unit); surplus > 0 {
			need, _ := l.Ask(surplus, 0, true)
			b.Credits = l.Charge(b.Credits, need, 1)
		}
	}
	return b, nil
}

// inspectOrLook returns the secondary's bucket of c, by its state if the secondary is no Inspector.
func (f *Store) inspectOrLook(ctx context.Context, c *store.Charge) (store.Bucket, error) {
	b, err := store.Inspect(ctx, f.secondary, c.Policy, c.Key)
	if !errors.Is(err, errors.ErrUnsupported) {
		return b, err
	}
	states := make([]store.State, 1)
	if _, err := f.secondary.Take(ctx, []store.Charge{*c}, states); err != nil {
		return b, err
	}
	return infer.Bucket(c, &states[0]), nil
}

// left returns how long the secondary's bucket b of c will be blocked when the block of the primary's bucket is enforced,
// and whether that is a lock.
func (b *blocks) left(c *store.Charge, secondary store.Bucket) (left time.Duration, lock bool) {
	if one, differs := b.differs(c.Policy, c.Key); differs {
		return time.Duration(max(0, one.until-b.now())) * time.Microsecond, false
	}
	return secondary.Blocked, secondary.Locked
}

// lookAll answers looks at buckets of stores that are no Inspectors.
func (f *Store) lookAll(ctx context.Context, o *outage, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		c := charges[i]
		c.Cost = readonly.For(ctx).Cost
		b, err := f.look(ctx, o, &c)
		if err != nil {
			return false, err
		}
		states[i] = b.State(b.Limit)
	}
	return true, nil
}
