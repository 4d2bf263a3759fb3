package fallback

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

var _ store.Blocker = (*Store)(nil)

// Block implements [store.Blocker]. While the primary is unavailable, it blocks or unblocks the bucket of the secondary:
// for this replica, and until the primary is back. It then reports degraded. If the primary fails the call and is not given
// up yet, Block returns the error.
func (f *Store) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	if err := store.ValidateBlock(policy, key, b); err != nil {
		return false, err
	}
	key = shortkey.Of(key)
	if o := f.away.Load(); o != nil {
		if !store.MayStandIn(ctx) {
			return false, o.refuse()
		}
		return true, f.setBlock(ctx, policy, key, b)
	}
	limited, end := f.limited(ctx)
	defer end()
	sent := f.now()
	degraded, err = store.SetBlock(limited, f.primary, policy, key, b)
	f.judge(ctx, err, []store.Charge{{Policy: policy, Key: key}}, sent)
	if err == nil {
		f.blockSecondary(context.WithoutCancel(ctx), policy, key, b)
	}
	return degraded, err
}

// blockSecondary is setBlock after the primary has done or reported the same.
func (f *Store) blockSecondary(ctx context.Context, policy, key string, b store.Block) {
	if err := f.setBlock(ctx, policy, key, b); err != nil {
		f.failures.Log(ctx, fmt.Errorf("blocking a bucket of the secondary: %w", err))
	}
}

func (f *Store) setBlock(ctx context.Context, policy, key string, b store.Block) error {
	if b.For > 0 {
		f.noteBlock(b.For)
	}
	_, err := store.SetBlock(ctx, f.secondary, policy, key, b)
	return err
}
