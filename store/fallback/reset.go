package fallback

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

func hasReset(charges []store.Charge) bool {
	for i := range charges {
		if charges[i].Cost == store.Reset {
			return true
		}
	}
	return false
}

// takeResets is take for a call that resets buckets. It forgets the charges that an outage has left for them. It
// also resets the bucket of the secondary, because the next outage would begin with it.
func (f *Store) takeResets(ctx context.Context, charges []store.Charge, states []store.State) (ok bool, err error) {
	var held []*spending
	for i := range charges {
		if charges[i].Cost != store.Reset {
			continue
		}
		s, err := f.spent.hold(ctx, account{charges[i].Policy, charges[i].Key})
		if s != nil {
			held = append(held, s)
		}
		if err != nil {
			f.putBack(held)
			return false, err
		}
	}
	if ok, err = f.takeBlocks(ctx, charges, states); !ok || err != nil {
		f.putBack(held)
		return ok, err
	}
	for i := range charges {
		if charges[i].Cost != store.Reset {
			continue
		}
		if _, err := f.secondary.Take(context.WithoutCancel(ctx), charges[i:i+1], make([]store.State, 1)); err != nil {
			f.failures.Log(ctx, fmt.Errorf("resetting a bucket of the secondary: %w", err))
		}
	}
	return true, nil
}

// hold waits until a bucket is not being charged, and removes its spending from the ledger, if there is one.
func (l *ledger) hold(ctx context.Context, a account) (held *spending, err error) {
	err = l.whenSettled(ctx, a, func(s *spending) {
		if held = s; s != nil {
			l.unlist(s)
		}
	})
	return held, err
}

// whenSettled waits until a bucket is not being charged, and calls f with its spending, or nil. The ledger is locked then.
func (l *ledger) whenSettled(ctx context.Context, a account, f func(*spending)) error {
	for {
		l.mu.Lock()
		charging := l.charging[a]
		if charging == nil {
			f(l.accounts[a])
		}
		l.mu.Unlock()
		if charging == nil {
			return nil
		}
		select {
		case <-charging:
		case <-ctx.Done():
			return fmt.Errorf("fallback: the primary is being charged for an outage: %w", ctx.Err())
		}
	}
}

// putBack restores the spendings of a call that has not reset its buckets.
func (f *Store) putBack(held []*spending) {
	f.spent.mu.Lock()
	for _, s := range held {
		if f.spent.accounts[s.account] == nil {
			f.spent.list(s)
		}
	}
	f.spent.mu.Unlock()
	if len(held) > 0 {
		f.settleLate()
	}
}

// reset makes s full from now on. The primary's bucket is reset when it is back.
func (f *Store) reset(s *spending, c *store.Charge) {
	f.known.forget(c) // or the next outage might begin with it, if this one ends before the primary's bucket is reset
	f.spent.reset(s)
	f.blocks.set(c, 0, false)
}

// reset forgets what was allowed of s, and records that the primary's bucket must be reset.
func (l *ledger) reset(s *spending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.inForce(s)
	s.idle, s.charged, s.taken, s.reset, s.block = bucket.Bucket{}, bucket.Bucket{}, 0, true, dueBlock{}
}

// forget removes what is known of c's bucket, under any limit.
func (k *known) forget(c *store.Charge) {
	places, t := k.find(c)
	if p := placeOf(places, t); p != nil {
		p.whose.Store(0)
	}
}
