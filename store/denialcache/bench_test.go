package denialcache_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

func BenchmarkTake(b *testing.B) {
	for name, c := range map[string]store.Charge{
		"denied":  {Limit: teststore.Limit(b, 1, time.Hour, 5), Cost: 6},
		"allowed": {Limit: teststore.Limit(b, 1_000_000, time.Second, 1_000_000_000), Cost: 1},
	} {
		for _, keys := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s,keys=%d", name, keys), func(b *testing.B) {
				s := ratelimit.Must(denialcache.New(instant{}, denialcache.Config{}))
				var callers atomic.Int64
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					n := int(callers.Add(1))
					charges := make([][]store.Charge, keys)
					for i := range charges {
						charges[i] = []store.Charge{{Policy: "api", Key: fmt.Sprint("ip:192.0.2.", i), Limit: c.Limit, Cost: c.Cost}}
					}
					states := make([]store.State, 1, 16) // no cache line of another's
					for ; pb.Next(); n++ {
						if _, err := s.Take(context.Background(), charges[n%keys], states); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// instant is a Store that takes no time, so that what is measured is the cache.
type instant struct{}

func (instant) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges[0].Fill(&states[0], 5*charges[0].Limit.Unit, 0, 0, charges[0].Cost <= 5)
	return charges[0].Cost <= 5, nil
}
