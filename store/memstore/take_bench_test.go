package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// BenchmarkTake is one decision about one of 10,000 keys.
func BenchmarkTake(b *testing.B) {
	for name, burst := range map[string]int64{"Allowed": 1_000_000_000, "Denied": 1} {
		b.Run(name, func(b *testing.B) {
			limit, err := store.NewLimit(1, time.Second, burst)
			if err != nil {
				b.Fatal(err)
			}
			s := ratelimit.Must(memstore.New(memstore.Config{}))
			defer s.Close()
			keys := make([]string, 10_000)
			for i := range keys {
				keys[i] = fmt.Sprintf("member:%08d", i)
				s.Take(b.Context(), []store.Charge{{Policy: "bench", Key: keys[i], Limit: limit, Cost: 1}}, make([]store.State, 1))
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				random := rand.New(rand.NewPCG(rand.Uint64(), 0))
				charges, states := []store.Charge{{Policy: "bench", Limit: limit, Cost: 1}}, make([]store.State, 1)
				for pb.Next() {
					charges[0].Key = keys[random.IntN(len(keys))]
					if _, err := s.Take(context.Background(), charges, states); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
