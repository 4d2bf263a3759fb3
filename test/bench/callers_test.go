package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A take takes a token of a key, and returns whether it was allowed.
type take func(ctx context.Context, key string) (bool, error)

// A side is what a sub-benchmark measures. Each caller gets a take of its own.
type side struct {
	name string
	open func() take
}

// shared is the open of a side whose callers all have the same take.
func shared(t take) func() take { return func() take { return t } }

// A load is how the sides of a benchmark are called.
type load struct {
	callers int
	keys    int
	zipf    float64 // the exponent of the distribution of the keys; 0 for equal use
	denied  bool    // the expected result, but for the first call for each key, which is allowed
	context bool    // each call has a context of its own, as a request in a server
	redis   servers // nil: none
}

// The timeouts are much longer than a call, so that no call fails on a busy machine.
const limiterTimeout = 5 * time.Second

// run measures each side. Every second time, the program wants them in reverse order, so that no side always finds the
// caches and the heap as the same other side left them.
func (l load) run(b *testing.B, sides ...side) {
	keys, draws := l.draw()
	takes := make(map[string][]take)
	for _, s := range sides {
		takes[s.name] = l.fill(b, s, keys)
	}
	if os.Getenv(reversed) != "" {
		slices.Reverse(sides)
	}
	for _, s := range sides {
		b.Run(s.name, func(b *testing.B) { l.measure(b, takes[s.name], draws) })
	}
}

// memberKey returns the ith key, of 15 bytes.
func memberKey(i int) string { return fmt.Sprintf("member:%08d", i) }

// draw returns the keys, and a long list in which each appears as often as it is used. Random choices during the
// measurement would take longer than some decisions.
func (l load) draw() (keys, draws []string) {
	keys = make([]string, l.keys)
	for i := range keys {
		keys[i] = memberKey(i)
	}
	random := rand.New(rand.NewPCG(1, 0))
	next := func() uint64 { return random.Uint64N(uint64(len(keys))) }
	if l.zipf > 0 {
		next = rand.NewZipf(random, l.zipf, 1, uint64(len(keys)-1)).Uint64
	}
	draws = make([]string, max(1<<16, min(len(keys), 1<<18)))
	for i := range draws {
		draws[i] = keys[next()]
	}
	return keys, draws
}

// fill returns a take for each caller. It takes the first token of every key, so that all later calls find what they expect.
func (l load) fill(b *testing.B, s side, keys []string) []take {
	var filling sync.WaitGroup
	takes := make([]take, max(l.callers, 64))
	for id := range takes {
		take := s.open()
		takes[id] = take
		filling.Go(func() {
			for i := id; i < len(keys); i += len(takes) {
				if ok, err := take(context.Background(), keys[i]); !ok || err != nil {
					b.Errorf("%s: the first token of %s: allowed %v, %v", s.name, keys[i], ok, err)
					return
				}
			}
		})
	}
	filling.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return takes
}

// heapOfService stands for the other memory of a service. With an almost empty heap, the garbage collector would run
// hundreds of times a second.
const heapOfService = 64 << 20

// measure reports decisions, and for each: latencies, allocations, and the processor time of this process and of Redis.
func (l load) measure(b *testing.B, takes []take, draws []string) {
	heap := make([]byte, heapOfService)
	defer runtime.KeepAlive(heap)
	// It has a deadline, because clients take a shorter path for contexts without one.
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var latencies histogram
	var mu sync.Mutex
	// As b.RunParallel, but callers get few calls at once: a caller waits for most calls, and the others would have ended.
	var done atomic.Int64
	batch := max(1, int64(b.N/(64*l.callers)))
	work := func(id int) {
		take, own, at := takes[id], new(histogram), id*(len(draws)/len(takes)) // each caller begins at another key
		last := time.Now()
		for begin := done.Add(batch) - batch; begin < int64(b.N); begin = done.Add(batch) - batch {
			for range min(batch, int64(b.N)-begin) {
				ok, err := l.call(ctx, take, draws[at%len(draws)])
				if err != nil || ok == l.denied {
					b.Errorf("allowed %v, %v", ok, err)
					return
				}
				now := time.Now()
				own.add(now.Sub(last))
				last = now
				at++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		latencies.merge(own)
	}
	b.ReportAllocs()
	redisBefore, goBefore := l.redis.cpu(b), processCPU()
	b.ResetTimer()
	var working sync.WaitGroup
	for id := range l.callers {
		working.Go(func() { work(id) })
	}
	working.Wait()
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(latencies.quantile(0.5), "p50-ns")
	b.ReportMetric(latencies.quantile(0.99), "p99-ns")
	b.ReportMetric(float64(processCPU()-goBefore)/n, "go-ns/op")
	if l.redis != nil {
		b.ReportMetric(float64(l.redis.cpu(b)-redisBefore)/n, "redis-ns/op")
	}
}

func (l load) call(ctx context.Context, t take, key string) (bool, error) {
	if l.context {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	return t(ctx, key)
}
