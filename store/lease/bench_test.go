package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// Nearly all calls are paid here.
func BenchmarkLeasedSpend(b *testing.B) {
	for _, keys := range []int{1, 8} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s := openLease(b, teststore.OpenMemory(b, nil), lease.Config{Fraction: 1, Hold: time.Hour})
			c := store.Charge{Policy: "api", Limit: teststore.Limit(b, 10, time.Second, 1_000_000_000), Cost: 1}
			charges := make([][]store.Charge, keys)
			for i := range charges {
				c.Key = fmt.Sprint("ip:192.0.2.", i)
				charges[i] = []store.Charge{c}
			}
			ctx, cancel := context.WithCancel(context.Background()) // as that of a request
			defer cancel()
			var callers atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				n := int(callers.Add(1))
				states := make([]store.State, 1)
				for ; pb.Next(); n++ {
					if _, err := s.Take(ctx, charges[n%keys], states); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
