package fallback_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// What a fallback adds to a healthy decision is the difference between healthy and alone. A denial costs a look at the bucket
// of the secondary.
func BenchmarkFallback(b *testing.B) {
	memory := ratelimit.Must(memstore.New(memstore.Config{}))
	defer memory.Close()
	primary := new(teststore.Faulty)
	primary.Have(teststore.Broken)
	healthy, open := openFallback(b, memory, fallback.Config{}), openFallback(b, primary, fallback.Config{})
	divided := openFallback(b, primary, fallback.Config{Replicas: 4})
	for _, c := range []struct {
		name  string
		store store.Store
		burst int64
	}{
		{"alone", memory, 1_000_000}, {"healthy", healthy, 1_000_000}, {"open", open, 1_000_000}, {"open,replicas=4", divided, 1_000_000},
		{"denied,alone", memory, 1}, {"denied,healthy", healthy, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			const keys = 10_000
			charges := make([][]store.Charge, keys)
			for i := range charges {
				l := teststore.Limit(b, c.burst, time.Hour, c.burst)
				charges[i] = []store.Charge{{Policy: c.name, Key: fmt.Sprint("ip:192.0.2.", i), Limit: l, Cost: 1}}
			}
			var callers atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				n := int(callers.Add(1)) * keys / 2
				states := make([]store.State, 1, 16) // no cache line of another's
				for ; pb.Next(); n++ {
					if _, err := c.store.Take(context.Background(), charges[n%keys], states); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
