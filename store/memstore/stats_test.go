package memstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestBytesAreThoseOfTheHeap(t *testing.T) {
	for name, tt := range map[string]struct {
		keys, policies int
		key            string
		blocks         []time.Duration
	}{
		"none":           {},
		"few":            {keys: 2000, policies: 1, key: "k"},
		"many":           {keys: 6_000, policies: 3, key: "member:"},
		"long keys":      {keys: 2_500, policies: 1, key: strings.Repeat("k", 100)},
		"all blocked":    {keys: 4_000, policies: 1, key: "member:", blocks: []time.Duration{time.Hour}},
		"were blocked":   {keys: 4_000, policies: 1, key: "member:", blocks: []time.Duration{time.Hour, 0}},
		"many policies":  {keys: 4_000, policies: 10, key: "member:"},
		"hashed keys":    {keys: 2_500, policies: 1, key: strings.Repeat("k", 1000)},
		"of a few bytes": {keys: 4_000, policies: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var got store.MemoryStats
			want := ratetest.HeapOf(func() any {
				s := ratelimit.Must(memstore.New(memstore.Config{}))
				t.Cleanup(func() { s.Close() })
				for i := range tt.keys {
					c := charge(t, fmt.Sprint(tt.key, i), 50)
					c.Policy = fmt.Sprint("policy", i%tt.policies)
					take(t, s, c)
				}
				for _, d := range tt.blocks {
					for i := range tt.keys {
						c := charge(t, fmt.Sprint(tt.key, i), 0)
						c.Policy = fmt.Sprint("policy", i%tt.policies)
						setBlock(t, s, c, d)
					}
				}
				got = *s.Stats().Memory
				return s
			})
			if got.Buckets != tt.keys {
				t.Errorf("%d buckets, want %d", got.Buckets, tt.keys)
			}
			const other = 30_000 // of the test
			if off := got.Bytes - want; off > want/10+other || off < -want/10-other {
				t.Errorf("%d bytes, and the heap has grown by %d", got.Bytes, want)
			}
		})
	}
}

func TestEvictionsAreCountedByPolicy(t *testing.T) {
	n := newNow()
	s := openAt(t, n, 8)
	want := func(evicted map[string]int64) {
		t.Helper()
		if got := s.Stats().Memory.Evicted; fmt.Sprint(got) != fmt.Sprint(evicted) {
			t.Fatalf("%v, want %v", got, evicted)
		}
	}
	slow, fast := policy(t, "slow", 1, time.Hour, 10), policy(t, "fast", 1, time.Second, 1)
	mint(t, s, slow, 0, 8)
	want(map[string]int64{})
	mint(t, s, slow, 10, 3)
	want(map[string]int64{"slow": 3})
	mint(t, s, fast, 0, 7) // of which 4 are its share
	want(map[string]int64{"fast": 3, "slow": 7})
	n.advance(time.Second)
	mint(t, s, slow, 20, 4) // which full buckets make room for
	want(map[string]int64{"fast": 3, "slow": 7})
	mint(t, s, slow, 30, 1)
	want(map[string]int64{"fast": 3, "slow": 8})
}

// A bucket whose block has ended need not be full.
func TestEvictionsOfBucketsWhoseBlocksHaveEnded(t *testing.T) {
	const most = 300
	n := newNow()
	s := openAt(t, n, most)
	of := policy(t, "p", 1, time.Hour, 10)
	for i := range most {
		c := of(i)
		c.Cost, c.Lock = 10, time.Second
		take(t, s, c)
	}
	n.advance(time.Second)
	mint(t, s, of, 0, 10)
	if got := s.Stats().Memory.Evicted["p"]; got != 10 {
		t.Errorf("%d evictions are counted, want 10", got)
	}
}

// Policies come from the program. Even so, their number is bounded, and none is lost when there are more.
func TestEvictionsOfManyPolicies(t *testing.T) {
	s := openFull(t, 1)
	for i := range 300 {
		for range 2 { // each by the next
			take(t, s, policy(t, fmt.Sprintf("p%d", i), int64(1+i), time.Hour, int64(1+i))("k"))
		}
		evicted := s.Stats().Memory.Evicted
		var sum int64
		for _, n := range evicted {
			sum += n
		}
		if sum != int64(i) || len(evicted) > 65 || i > 64 && evicted["_other"] != int64(i-64) {
			t.Fatalf("after %d evictions: %v", i, evicted)
		}
	}
	if got := s.Stats().Memory.Evicted["p5"]; got != 1 {
		t.Errorf("%d of p5, want 1", got)
	}
}

// Two cache lines, of which most calls need the first.
func TestSizes(t *testing.T) {
	if memstore.ShardSize != 128 || memstore.EntrySize != 48 {
		t.Errorf("a shard has %d bytes, an entry %d, want 128 and 48", memstore.ShardSize, memstore.EntrySize)
	}
}

func BenchmarkStats(b *testing.B) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	for i := range 100_000 {
		take(b, s, store.Charge{Policy: "p", Key: fmt.Sprint(i), Limit: teststore.Limit(b, 1, time.Hour, 5), Cost: 5, Lock: time.Hour})
	}
	for b.Loop() {
		s.Stats()
	}
}
