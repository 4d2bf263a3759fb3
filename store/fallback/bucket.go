package fallback

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements [store.Inspector]. While the primary is unavailable, the secondary answers. The Bucket is then
// Degraded, under this replica's share of the limit.
func (f *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	key = keyname.Short(key)
	if o := f.away.Load(); o != nil {
		if !store.MayStandIn(ctx) {
			return store.Bucket{}, o.refuse()
		}
		return f.inspectSecondary(ctx, policy, key)
	}
	var b store.Bucket
	failed, err := f.try(ctx, []store.Charge{{Policy: policy, Key: key}}, func(ctx context.Context) (err error) {
		b, err = store.Inspect(ctx, f.primary, policy, key)
		return err
	})
	if !failed || !store.MayStandIn(ctx) {
		return b, err
	}
	return f.inspectSecondary(context.WithoutCancel(ctx), policy, key)
}

func (f *Store) inspectSecondary(ctx context.Context, policy, key string) (store.Bucket, error) {
	b, err := store.Inspect(ctx, f.secondary, policy, key)
	b.Degraded = err == nil
	return b, err
}

// Block implements [store.Blocker]. While the primary is unavailable, it blocks or unblocks the bucket of the secondary:
// on this replica, until the primary is back. The result is then degraded. If the primary fails the call and is not given
// up yet, Block returns the error.
func (f *Store) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	if err := store.ValidateBlock(policy, key, b); err != nil {
		return false, err
	}
	key = keyname.Short(key)
	if o := f.away.Load(); o != nil {
		if !store.MayStandIn(ctx) {
			return false, o.refuse()
		}
		return true, f.setBlock(ctx, policy, key, b)
	}
	_, err = f.try(ctx, []store.Charge{{Policy: policy, Key: key}}, func(ctx context.Context) (err error) {
		degraded, err = store.SetBlock(ctx, f.primary, policy, key, b)
		return err
	})
	if err == nil {
		f.logSecondary(ctx, f.setBlock(context.WithoutCancel(ctx), policy, key, b))
	}
	return degraded, err
}

// setBlock blocks or unblocks a bucket of the secondary.
func (f *Store) setBlock(ctx context.Context, policy, key string, b store.Block) error {
	if b.For > 0 {
		f.noteBlock(b.For)
	}
	f.blockChanged.Store(f.now())
	_, err := store.SetBlock(ctx, f.secondary, policy, key, b)
	return err
}
