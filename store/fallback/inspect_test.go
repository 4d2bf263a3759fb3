package fallback_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func TestInspectByTheSecondaryInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{Replicas: 4})
		c := teststore.Months(t, 1)
		d.take(c)
		inspect := func(ctx context.Context) store.Bucket {
			t.Helper()
			b, err := d.Inspect(ctx, c.Policy, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		if b := inspect(t.Context()); b.Degraded || b.Limit != c.Limit || b.State(c.Limit).Remaining != 599 {
			t.Errorf("%+v", b)
		}
		d.fail(teststore.Broken)
		d.take(teststore.Months(t, 9))
		b := inspect(t.Context())
		if s := b.State(b.Limit); !b.Degraded || !s.Degraded || !b.Used() || b.Limit == c.Limit || s.Remaining != 150-9 {
			t.Errorf("%+v, %+v", b, s)
		}
		if _, err := d.Inspect(store.WithoutStandIn(t.Context()), c.Policy, c.Key); !errors.Is(err, store.ErrAway) {
			t.Errorf("%v, want ErrAway", err)
		}
		d.comeBack()
		d.take(c)
		if b := inspect(t.Context()); b.Degraded || b.State(c.Limit).Remaining != 589 {
			t.Errorf("%+v", b)
		}
	})
}

func TestInspectsThatFailGiveThePrimaryUpAndThoseOfCallersThatLeaveDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			short, end := context.WithTimeout(t.Context(), time.Millisecond)
			d.primary.Have(teststore.Hung)
			for _, ctx := range []context.Context{ctx, short} {
				if _, err := d.Inspect(ctx, "p", "k"); !errors.Is(err, ctx.Err()) {
					t.Fatal(err)
				}
			}
			end()
		}
		if d.Away() != nil {
			t.Fatal("given up for callers that left")
		}
		d.primary.Have(teststore.Broken)
		for i := range 5 {
			if _, err := d.Inspect(store.WithoutStandIn(t.Context()), "p", "k"); !errors.Is(err, teststore.ErrBroken) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if b, err := d.Inspect(t.Context(), "p", "k"); d.Away() == nil || err != nil || !b.Degraded {
			t.Errorf("%+v, %v, away: %v", b, err, d.Away())
		}
		d.comeBack()
	})
}
