package denialcache_test

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestDenialsContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
		return ratelimit.Must(denialcache.New(teststore.OpenMemory(t, clock), denialcache.Config{Clock: clock}))
	})
}

func TestDenialsSequence(t *testing.T) {
	// Short ones: where the clock was far ahead once, buckets stand still, and then no denial is kept.
	sequences, steps := testsize.Of(40, 200), 150
	for name, cfg := range map[string]denialcache.Config{
		"default":      {},
		"few and long": {MaxKeys: 16, MaxAge: 100 * 365 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			local := 0
			for seed := range sequences {
				var d *denialcache.Store
				storetest.RunSequence(t, func(t *testing.T, clock func() time.Time) store.Store {
					cfg.Clock = clock
					d = ratelimit.Must(denialcache.New(teststore.OpenMemory(t, clock), cfg))
					return d
				}, steps, uint64(seed))
				local += int(d.Stats().Denials.Answered)
			}
			t.Logf("%d calls were answered without the store", local)
			if least := sequences / 10; local < least {
				t.Errorf("want at least %d", least)
			}
		})
	}
}

func TestStatsHaveThoseOfTheStore(t *testing.T) {
	storetest.RunDecorator(t, func(_ *testing.T, inner store.Store) store.Store {
		return ratelimit.Must(denialcache.New(inner, denialcache.Config{}))
	})
}
