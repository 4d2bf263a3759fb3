package observe_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-tokenbucket/ratelimit/observe"
)

// BenchmarkTop measures the cost of a request: of new keys, which all take the place of another, of keys whose frequency
// falls as 1/rank, of one key, and of new keys that all take the one place that the heaviest keys leave.
// At most 200 ns.
func BenchmarkTop(b *testing.B) {
	const many = 1 << 16 // more would measure the memory that the benchmark itself reads
	uniform := make([]string, many)
	for i := range uniform {
		uniform[i] = fmt.Sprint("ip:2001:db8::", i)
	}
	zipf, ranks := make([]string, many), rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, many-1)
	for i := range zipf {
		zipf[i] = uniform[ranks.Uint64()]
	}
	oneIsLeft := make([]string, many)
	for i := range oneIsLeft {
		oneIsLeft[i] = uniform[i]
		if i < many/2 {
			oneIsLeft[i] = uniform[i%127]
		}
	}
	long := make([]string, 1<<12)
	for i := range long {
		long[i] = fmt.Sprint(i, strings.Repeat("k", 240))
	}
	for _, c := range []struct {
		name    string
		keys    []string
		allowed bool
	}{
		{"new-keys", uniform, true},
		{"new-keys-denied", uniform, false},
		{"zipf", zipf, true},
		{"zipf-denied", zipf, false},
		{"one-key", uniform[:1], true},
		{"one-key-denied", uniform[:1], false},
		{"one-place-left", oneIsLeft, true},
		{"keys-of-240-bytes", long, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			top := observe.NewTop(observe.TopConfig{})
			for _, key := range c.keys[:len(c.keys)/2] {
				top.Observe(context.Background(), asked("api", key, c.allowed))
			}
			var from atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				ctx, e := context.Background(), asked("api", "", c.allowed)
				for i := len(c.keys)/2 + int(from.Add(1<<10)); pb.Next(); i++ {
					e.Results[0].Key = c.keys[i%len(c.keys)]
					top.Observe(ctx, e)
				}
			})
		})
	}
}
