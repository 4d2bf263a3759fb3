package fallback

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/readonly"
	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Inspect implements [store.Inspector]. While the primary is unavailable, the secondary answers. The Bucket is then
// Degraded: it holds what this replica has allowed in the outage, under its share of the limit.
func (f *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	key = shortkey.Of(key)
	if o := f.away.Load(); o != nil {
		if !store.MayStandIn(ctx) {
			return store.Bucket{}, fmt.Errorf("%w: %w", store.ErrAway, o.reason)
		}
		return f.inspectSecondary(ctx, o, policy, key)
	}
	asked := []store.Charge{{Policy: policy, Key: key}}
	sent := f.known.now()
	b, err := f.inspectPrimary(ctx, policy, key)
	took := f.known.now() - sent
	if err == nil && (b.Blocked > 0 || f.blocks.some()) {
		f.blocks.learn(asked, []store.State{{Blocked: b.Blocked > 0, RetryAfter: b.Blocked, Degraded: b.Degraded}}, f.blocks.now()-took)
	}
	switch {
	case err == nil:
		f.answered(ctx, took, asked, sent)
		return b, nil
	case errors.Is(err, errors.ErrUnsupported), f.blameless(ctx, err, took):
		return b, err
	}
	f.failed(ctx, err, asked, sent)
	if !store.MayStandIn(ctx) {
		return b, err
	}
	o := f.away.Load()
	if o == nil && errors.Is(err, store.ErrNotCharged) {
		o = &f.brief
	}
	return f.inspectSecondary(context.WithoutCancel(ctx), o, policy, key)
}

func (f *Store) inspectPrimary(ctx context.Context, policy, key string) (store.Bucket, error) {
	if !hasDeadline(ctx) {
		limited := &deadline.Context{Parent: ctx, Terms: &f.terms}
		defer limited.End()
		ctx = limited
	}
	return store.Inspect(ctx, f.primary, policy, key)
}

// inspectSecondary is Inspect during o. In that of a single call, which the primary may have carried out, o is nil.
func (f *Store) inspectSecondary(ctx context.Context, o *outage, policy, key string) (store.Bucket, error) {
	if asked := readonly.For(ctx); asked != nil {
		c := *asked
		c.Key = key
		return f.look(ctx, o, &c)
	}
	f.enforce(ctx, &store.Charge{Policy: policy, Key: key})
	b, err := store.Inspect(ctx, f.secondary, policy, key)
	b.Degraded = err == nil
	return b, err
}
