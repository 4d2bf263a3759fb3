package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
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
		return f.inspectSecondary(ctx, policy, key)
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
	return f.inspectSecondary(context.WithoutCancel(ctx), policy, key)
}

func (f *Store) inspectPrimary(ctx context.Context, policy, key string) (store.Bucket, error) {
	if !hasDeadline(ctx) {
		limited := &deadline.Context{Parent: ctx, Terms: &f.terms}
		defer limited.End()
		ctx = limited
	}
	return store.Inspect(ctx, f.primary, policy, key)
}

// inspectSecondary is Inspect while the primary is unavailable. A block of the primary that the secondary does not have yet
// will be enforced by the next charge.
func (f *Store) inspectSecondary(ctx context.Context, policy, key string) (store.Bucket, error) {
	b, err := store.Inspect(ctx, f.secondary, policy, key)
	if err != nil {
		return b, err
	}
	b.Degraded = true
	if due, differs := f.blocks.differs(policy, key); differs {
		left := max(0, due.until-f.blocks.now())
		b.Blocked, b.Locked = time.Duration(left)*time.Microsecond, due.lock && left > 0
	}
	return b, nil
}
