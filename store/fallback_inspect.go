package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
)

// Inspect implements Inspector. While the primary is unavailable, the secondary answers: the Bucket is then Degraded,
// and is what this replica has allowed in the outage, by its share of the limit.
func (f *FallbackStore) Inspect(ctx context.Context, policy, key string) (Bucket, error) {
	if err := ValidateName(policy, key); err != nil {
		return Bucket{}, err
	}
	key = shortkey.Of(key)
	if o := f.away.Load(); o != nil {
		if !mayStandIn(ctx) {
			return Bucket{}, fmt.Errorf("%w: %w", ErrAway, o.reason)
		}
		return f.inspectSecondary(ctx, policy, key)
	}
	asked := []Charge{{Policy: policy, Key: key}}
	sent := f.known.now()
	b, err := f.inspectPrimary(ctx, policy, key)
	took := f.known.now() - sent
	slow := took >= f.slow.Microseconds()
	switch {
	case err == nil && slow:
		f.failed(ctx, errSlow, asked, sent)
		return b, nil
	case err == nil:
		f.tally.succeeded(took)
		return b, nil
	case errors.Is(err, errors.ErrUnsupported), errors.Is(ctx.Err(), context.Canceled), !slow && over(ctx):
		return b, err // which says nothing about primary
	}
	f.failed(ctx, err, asked, sent)
	if !mayStandIn(ctx) {
		return b, err
	}
	return f.inspectSecondary(context.WithoutCancel(ctx), policy, key)
}

func (f *FallbackStore) inspectPrimary(ctx context.Context, policy, key string) (Bucket, error) {
	if !hasDeadline(ctx) {
		limited := &deadline.Context{Parent: ctx, Timeout: f.slow}
		defer limited.End()
		ctx = limited
	}
	return Inspect(ctx, f.primary, policy, key)
}

func (f *FallbackStore) inspectSecondary(ctx context.Context, policy, key string) (Bucket, error) {
	b, err := Inspect(ctx, f.secondary, policy, key)
	b.Degraded = err == nil
	return b, err
}
