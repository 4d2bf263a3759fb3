package fleet

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// BenchmarkFleet measures what 200 replicas with snapshots of 8 KB cost this process, and Redis in time of its CPU.
func BenchmarkFleet(b *testing.B) {
	const replicas = 200
	server := redistest.Start(b)
	values := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	b.Cleanup(func() { values.Close() })
	s := large(rand.New(rand.NewPCG(1, 2)))
	s.Policies = s.Policies[:32]
	var publishers []*Publisher
	for i := range replicas {
		publishers = append(publishers, NewPublisher(values, fmt.Sprint("replica-", i)))
		if err := publishers[i].Publish(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
	cpu := regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)
	spent := func() (all float64) {
		for _, part := range cpu.FindAllStringSubmatch(server.Do("INFO", "cpu").(string), -1) {
			seconds, _ := strconv.ParseFloat(part[1], 64)
			all += seconds
		}
		return all
	}
	measured := func(b *testing.B, run func(i int)) {
		before := spent()
		for i := 0; b.Loop(); i++ {
			run(i)
		}
		b.ReportMetric((spent()-before)*1e6/float64(b.N), "redis-µs/op")
	}
	b.Run("publish", func(b *testing.B) {
		measured(b, func(i int) {
			if err := publishers[i%replicas].Publish(b.Context(), s); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("read", func(b *testing.B) {
		var size int
		measured(b, func(int) {
			changes, err := values.ReadValues(b.Context(), setName, store.Value{})
			if err != nil || len(changes.Values) != replicas {
				b.Fatal(len(changes.Values), err)
			}
			size = 0
			for _, v := range changes.Values {
				size += len(v.Text)
			}
		})
		b.ReportMetric(float64(size), "bytes")
	})
	changes, err := values.ReadValues(b.Context(), setName, store.Value{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("memory", func(b *testing.B) {
		var heap [2]runtime.MemStats
		for b.Loop() {
			r := NewReader(values, nil)
			runtime.GC()
			runtime.ReadMemStats(&heap[0])
			if f, err := r.Fleet(b.Context()); err != nil || len(f.Replicas) != replicas {
				b.Fatal(len(f.Replicas), err)
			}
			runtime.GC()
			runtime.ReadMemStats(&heap[1])
			runtime.KeepAlive(r)
		}
		b.ReportMetric(float64(int64(heap[1].HeapAlloc)-int64(heap[0].HeapAlloc))/replicas, "bytes/replica")
		used := int64(0)
		for _, key := range server.Do("KEYS", "*").([]any) {
			used += server.Do("MEMORY", "USAGE", key, "SAMPLES", 0).(int64)
		}
		b.ReportMetric(float64(used)/replicas, "redis-bytes/replica")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			NewReader(values, nil).decode(changes)
		}
	})
	b.Run("merge", func(b *testing.B) {
		f := NewReader(values, nil).decode(changes)
		for b.Loop() {
			f.Merged()
		}
	})
}
