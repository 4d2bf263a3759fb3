package fallback_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

func TestAFallbackKeepsLongKeysByTheirHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{})
		d.fail(teststore.Broken)
		if kept := teststore.HeapOf(func() { teststore.LongKeys(t, func(c store.Charge) { d.take(c) }) }); kept > teststore.MostOfLongKeys {
			t.Errorf("300 keys of 90 KB keep %d bytes", kept)
		}
		d.comeBack()
		teststore.LongKeys(t, func(c store.Charge) {
			if strings.HasSuffix(c.Key, "77") {
				if _, state := d.take(c); state.Degraded || state.Remaining != 98 {
					t.Errorf("%+v, want 98 left", state)
				}
			}
		})
	})
}

// An outage is probed with the keys of the call that failed.
func TestProbesHaveShortKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{Failures: 1})
		asked := 0
		d.primary.Store = longest{d.primary.Store, &asked}
		d.primary.Have(teststore.Broken)
		d.take(store.Charge{Policy: "p", Key: strings.Repeat("k", 1<<20), Limit: teststore.Limit(t, 1, time.Hour, 1), Cost: 1})
		d.comeBack()
		if asked == 0 || asked > 256 {
			t.Errorf("asked with a key of %d bytes", asked)
		}
	})
}

// longest notes how long a key was that a Store was asked with.
type longest struct {
	store.Store
	asked *int
}

func (s longest) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		*s.asked = max(*s.asked, len(charges[i].Key))
	}
	return s.Store.Take(ctx, charges, states)
}
