//go:build unix

package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// BenchmarkLimiterTake measures a decision as a service makes it: by Limiter.Take, with a context for each call.
// It reports the CPU time of this process for each decision, and the latency that the callers see.
func BenchmarkLimiterTake(b *testing.B) {
	server := redistest.Start(b)
	for _, client := range []string{"tuned", "default"} {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		if client == "tuned" {
			o, err := redisstore.Options("redis://" + server.Addr())
			if err != nil {
				b.Fatal(err)
			}
			rdb = redis.NewClient(o)
		}
		b.Cleanup(func() { rdb.Close() })
		for _, callers := range []int{1, 64, 1024} {
			for _, keys := range []int{1, 10_000} {
				for _, ctx := range []string{"background", "timeout"} {
					b.Run(fmt.Sprintf("client=%s/callers=%d/keys=%d/ctx=%s", client, callers, keys, ctx), func(b *testing.B) {
						benchmarkTake(b, rdb, callers, keys, ctx == "timeout")
					})
				}
			}
		}
	}
}

func benchmarkTake(b *testing.B, rdb *redis.Client, callers, keys int, timeout bool) {
	s := redisstore.New(rdb, redisstore.Config{})
	defer s.Close()
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s, Timeout: time.Minute}))
	policy := ratelimit.Policy{Name: "bench", Limit: ratelimit.PerSecond(1_000_000)}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("member:", i)
	}
	var next atomic.Int64
	var working sync.WaitGroup
	all := make([][]time.Duration, callers)
	ready := make(chan struct{})
	for id := range callers {
		all[id] = make([]time.Duration, 0, 4*b.N/callers+1)
		working.Go(func() {
			<-ready
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				begin := time.Now()
				ctx, cancel := context.Background(), context.CancelFunc(nil)
				if timeout {
					ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
				}
				if _, err := l.Take(ctx, policy, names[int(n*7919)%keys], 1); err != nil {
					b.Error(err)
				}
				if cancel != nil {
					cancel()
				}
				all[id] = append(all[id], time.Since(begin))
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := processTime(b)
	close(ready)
	working.Wait()
	b.StopTimer()
	b.ReportMetric(float64(processTime(b)-before)/float64(b.N), "cpu-ns/op")
	took := slices.Concat(all...)
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// processTime returns the processor time that this process has taken.
func processTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
