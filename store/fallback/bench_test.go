package fallback_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// What a fallback adds to a healthy decision is the difference between healthy and alone.
func BenchmarkFallback(b *testing.B) {
	quiet := fallback.Config{Logger: slog.New(slog.DiscardHandler)}
	memory := memstore.New(memstore.Config{})
	defer memory.Close()
	healthy := fallback.New(memory, nil, quiet)
	defer healthy.Close()
	primary := new(teststore.Faulty)
	primary.Have(teststore.Broken)
	open := fallback.New(primary, nil, quiet)
	defer open.Close()
	shared := quiet
	shared.Replicas = 4
	divided := fallback.New(primary, nil, shared)
	defer divided.Close()
	for _, c := range []struct {
		name  string
		store store.Store
	}{{"alone", memory}, {"healthy", healthy}, {"open", open}, {"open,replicas=4", divided}} {
		b.Run(c.name, func(b *testing.B) {
			const keys = 10_000
			charges := make([][]store.Charge, keys)
			for i := range charges {
				l := teststore.Limit(b, 1_000_000, time.Second, 1_000_000)
				charges[i] = []store.Charge{{Policy: "api", Key: fmt.Sprint("ip:192.0.2.", i), Limit: l, Cost: 1}}
			}
			var callers atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				n := int(callers.Add(1)) * keys / 2
				states := make([]store.State, 1, 16) // no cache line of another's
				ctx := context.Background()
				for ; pb.Next(); n++ {
					if _, err := c.store.Take(ctx, charges[n%keys], states); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// A denial costs a look at the bucket of the secondary.
func BenchmarkFallbackDenials(b *testing.B) {
	memory := memstore.New(memstore.Config{})
	defer memory.Close()
	f := fallback.New(memory, nil, fallback.Config{Logger: slog.New(slog.DiscardHandler)})
	defer f.Close()
	for name, s := range map[string]store.Store{"alone": memory, "healthy": f} {
		b.Run(name, func(b *testing.B) {
			charge := []store.Charge{{Policy: "api", Key: name, Limit: teststore.Limit(b, 1, time.Hour, 1), Cost: 1}}
			states := make([]store.State, 1)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Take(ctx, charge, states); err != nil {
					b.Error(err)
				}
			}
		})
	}
}
