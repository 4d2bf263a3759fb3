package denialcache_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

func BenchmarkDenied(b *testing.B) {
	for _, keys := range []int{1, 8} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			benchmarkTake(b, keys, store.Charge{Limit: teststore.Limit(b, 1, time.Hour, 5), Cost: 6}, denialcache.Config{})
		})
	}
}

func BenchmarkAllowed(b *testing.B) {
	for _, keys := range []int{1, 8} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			benchmarkTake(b, keys, store.Charge{Limit: teststore.Limit(b, 1_000_000, time.Second, 1_000_000_000), Cost: 1}, denialcache.Config{})
		})
	}
}

// instant is a Store that takes no time, so that what is measured is the cache.
type instant struct{}

func (instant) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges[0].Fill(&states[0], 5*charges[0].Limit.Unit, 0, charges[0].Cost <= 5)
	return charges[0].Cost <= 5, nil
}

func benchmarkTake(b *testing.B, keys int, c store.Charge, cfg denialcache.Config) {
	s := denialcache.New(instant{}, cfg)
	var callers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		n := int(callers.Add(1))
		charges := make([][]store.Charge, keys)
		for i := range charges {
			c.Policy, c.Key = "api", fmt.Sprint("ip:192.0.2.", i)
			charges[i] = []store.Charge{c}
		}
		states := make([]store.State, 1, 16) // no cache line of another's
		ctx := context.Background()
		for ; pb.Next(); n++ {
			if _, err := s.Take(ctx, charges[n%keys], states); err != nil {
				b.Error(err)
			}
		}
	})
}
