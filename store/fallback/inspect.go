package fallback

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements [store.Inspector]. While the primary is unavailable, the secondary answers. The Bucket is then
// Degraded, under this replica's share of the limit.
func (f *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	key = shortkey.Of(key)
	if o := f.away.Load(); o != nil {
		if !store.MayStandIn(ctx) {
			return store.Bucket{}, o.refuse()
		}
		return f.inspectSecondary(ctx, policy, key)
	}
	limited, end := f.limited(ctx)
	defer end()
	sent := f.now()
	b, err := store.Inspect(limited, f.primary, policy, key)
	if !f.judge(ctx, err, []store.Charge{{Policy: policy, Key: key}}, sent) || !store.MayStandIn(ctx) {
		return b, err
	}
	return f.inspectSecondary(context.WithoutCancel(ctx), policy, key)
}

func (f *Store) inspectSecondary(ctx context.Context, policy, key string) (store.Bucket, error) {
	b, err := store.Inspect(ctx, f.secondary, policy, key)
	b.Degraded = err == nil
	return b, err
}
