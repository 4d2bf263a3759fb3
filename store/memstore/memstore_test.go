package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, clock func() time.Time) store.Store {
	s := memstore.New(memstore.Config{Clock: clock})
	t.Cleanup(func() { s.Close() })
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, open)
}

func TestSequence(t *testing.T) {
	// In a bubble, where the timer of the sweep does not run out: it may forget a bucket that is full,
	// which a clock that goes backwards afterwards would tell.
	synctest.Test(t, func(t *testing.T) {
		storetest.RunSequence(t, open, testsize.Of(5_000, 100_000), 2)
	})
}

// now is the time of a test that moves it by hand.
type now struct{ nanoseconds atomic.Int64 } // a Store asks also when it sweeps

func newNow() *now {
	n := new(now)
	n.nanoseconds.Store(time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC).UnixNano())
	return n
}

func (n *now) clock() time.Time { return time.Unix(0, n.nanoseconds.Load()) }

func (n *now) advance(d time.Duration) { n.nanoseconds.Add(int64(d)) }

func charge(t testing.TB, key string, cost int64) store.Charge {
	t.Helper()
	limit, err := store.NewLimit(1, time.Second, 100)
	if err != nil {
		t.Fatal(err)
	}
	return store.Charge{Policy: "p", Key: key, Limit: limit, Cost: cost}
}

func take(t testing.TB, s store.Store, c store.Charge) store.State {
	t.Helper()
	states := make([]store.State, 1)
	if _, err := s.Take(context.Background(), []store.Charge{c}, states); err != nil {
		t.Fatal(err)
	}
	return states[0]
}

func remaining(t testing.TB, s store.Store, key string) int64 {
	t.Helper()
	return take(t, s, charge(t, key, 0)).Remaining
}

func TestTheBucketThatHasSpentLeastMakesRoom(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{MaxKeys: 4, Clock: n.clock})
	defer s.Close()
	for key, cost := range map[string]int64{"a": 50, "b": 20, "c": 90, "d": 30} {
		take(t, s, charge(t, key, cost))
	}
	want := func(key string, left int64) {
		t.Helper()
		if got := remaining(t, s, key); got != left {
			t.Errorf("%s has %d left, want %d", key, got, left)
		}
	}
	take(t, s, charge(t, "e", 40)) // b had spent least
	want("b", 100)
	want("a", 50)
	want("c", 10)
	want("d", 70)
	want("e", 60)

	// Charges and refunds count: now c has spent least, and d much.
	take(t, s, charge(t, "d", 65))
	take(t, s, charge(t, "c", -80))
	take(t, s, charge(t, "f", 99))
	want("c", 100)
	want("d", 5)

	// What counts is what is true now, not what was when the bucket was kept.
	take(t, s, charge(t, "e", -39))
	take(t, s, charge(t, "a", -40))
	take(t, s, charge(t, "e", 59))
	take(t, s, charge(t, "g", 50)) // a had spent 10
	want("a", 100)
	want("e", 40)

	// A peek and a charge that is denied need no room.
	take(t, s, charge(t, "g", 0))
	take(t, s, charge(t, "h", 101))
	want("e", 40)
	want("g", 50)
}

// Whatever is charged, reset and forgotten, the tables of a shard agree.
func TestTables(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{MaxKeys: 100, Clock: n.clock})
	defer s.Close()
	r := rand.New(rand.NewPCG(9, 0))
	for range testsize.Of(5_000, 20_000) {
		charges := make([]store.Charge, 1+r.IntN(3))
		for i := range charges {
			charges[i] = charge(t, fmt.Sprint("k", r.IntN(150)), 1+r.Int64N(20)-5)
			if r.IntN(20) == 0 {
				charges[i].Cost = store.Reset
			}
			charges[i].Policy = fmt.Sprint("p", i)
			limit, err := store.NewLimit(1+r.Int64N(3), time.Second, 100)
			if err != nil {
				t.Fatal(err)
			}
			charges[i].Limit = limit
		}
		if _, err := s.Take(context.Background(), charges, make([]store.State, len(charges))); err != nil {
			t.Fatal(err)
		}
		if fault := s.Check(); fault != "" {
			t.Fatal(fault)
		}
		n.advance(time.Duration(r.IntN(100)) * time.Millisecond)
		if r.IntN(50) == 0 {
			s.Sweep()
		}
	}
	if got := s.Len(); got > 100 {
		t.Errorf("%d buckets, want at most 100", got)
	}
}

func TestFullBucketsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		defer s.Close()
		const keys = 10_000
		for i := range keys {
			take(t, s, charge(t, fmt.Sprint("k", i), 1+int64(i%2)*9)) // full after 1 s, or 10 s
		}
		if got := s.Len(); got != keys {
			t.Fatalf("%d buckets, want %d", got, keys)
		}
		time.Sleep(2500 * time.Millisecond)
		if got := s.Len(); got != keys/2 {
			t.Errorf("%d buckets after 2.5 s, want %d", got, keys/2)
		}
		if got := remaining(t, s, "k1"); got != 92 {
			t.Errorf("a bucket that was not full has %d left, want 92", got)
		}
		time.Sleep(9 * time.Second)
		if got := s.Len(); got != 0 {
			t.Errorf("%d buckets when all are full", got)
		}
		// And once more, after the sweep had nothing left to do.
		take(t, s, charge(t, "late", 1))
		time.Sleep(3 * time.Second)
		if got := s.Len(); got != 0 {
			t.Errorf("%d buckets after the second time", got)
		}
	})
}

// A Go map does not shrink, and chunks are kept for later. A store that was large takes no memory for it.
func TestAStoreShrinks(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{Clock: n.clock})
	defer s.Close()
	for i := range 100_000 {
		cost := int64(1)
		if i%100 == 0 {
			cost = 100
		}
		take(t, s, charge(t, fmt.Sprint("k", i), cost))
	}
	n.advance(2 * time.Second)
	s.Sweep()
	if got, bytes := s.Len(), s.Stats().Memory.Bytes; got != 1000 || bytes > 2_500_000 {
		t.Errorf("%d buckets, want 1000; they take %d bytes", got, bytes)
	}
	for i := range 1000 {
		if got := remaining(t, s, fmt.Sprint("k", 100*i)); got != 2 {
			t.Fatalf("%d has %d left, want 2", i, got)
		}
	}
}

func TestCloseStopsTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		take(t, s, charge(t, "k", 1))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		take(t, s, charge(t, "k", 1))
		time.Sleep(time.Minute)
		if got := s.Len(); got != 1 {
			t.Errorf("%d buckets: swept after Close", got)
		}
	})
}

// Random insertions and removals against a Go map.
func TestBucketsAreNotLostAmongOthers(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{Clock: n.clock})
	defer s.Close()
	r := rand.New(rand.NewPCG(8, 0))
	spent := make(map[string]int64)
	for step := range testsize.Of(30_000, 200_000) {
		key := fmt.Sprint("k", r.IntN(20_000))
		if r.IntN(3) == 0 {
			take(t, s, charge(t, key, store.Reset))
			delete(spent, key)
		} else if spent[key] < 100 {
			take(t, s, charge(t, key, 1))
			spent[key]++
		}
		if step%5_000 == 0 {
			if fault := s.Check(); fault != "" {
				t.Fatal(fault)
			}
			s.Sweep()
		}
	}
	s.Sweep()
	if got := s.Len(); got != len(spent) {
		t.Errorf("%d buckets, want %d", got, len(spent))
	}
	for i := range 20_000 {
		key := fmt.Sprint("k", i)
		if got := remaining(t, s, key); got != 100-spent[key] {
			t.Fatalf("%s has %d left, want %d", key, got, 100-spent[key])
		}
	}
}

func TestMaxKeysIsABound(t *testing.T) {
	most := testsize.Of(5_000, 20_000)
	s := memstore.New(memstore.Config{MaxKeys: most})
	defer s.Close()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2 * most {
				take(t, s, charge(t, fmt.Sprint(g, i), 1+int64(i%100)))
			}
		})
	}
	wg.Wait()
	if got := s.Len(); got > most || got < most*9/10 {
		t.Errorf("%d buckets, want up to %d", got, most)
	}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	s := memstore.New(memstore.Config{})
	defer s.Close()
	few := []store.Charge{charge(t, "one", 1)}
	several := []store.Charge{charge(t, "one", 1), charge(t, "two", 1), charge(t, "three", 1)}
	states := make([]store.State, 3)
	ctx := context.Background()
	for name, charges := range map[string][]store.Charge{"one charge": few, "three charges": several} {
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := s.Take(ctx, charges, states); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestNegativeMaxKeysPanics(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "MaxKeys") {
			t.Errorf("recovered %v", r)
		}
	}()
	memstore.New(memstore.Config{MaxKeys: -1})
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 200, 1, 200, 2})
	f.Add([]byte("aAbBcCdDeEfFaAaA"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		s := memstore.New(memstore.Config{Clock: newNow().clock})
		defer s.Close()
		spent := make(map[string]int64)
		for _, b := range steps {
			key := string(rune('a' + b%50))
			if b >= 128 {
				take(t, s, charge(t, key, []int64{-100, store.Reset}[b%2]))
				delete(spent, key)
				s.Sweep()
			} else if spent[key] < 100 {
				take(t, s, charge(t, key, 1))
				spent[key]++
			}
			if fault := s.Check(); fault != "" {
				t.Fatal(fault)
			}
		}
		for b := range 50 {
			key := string(rune('a' + b))
			if got := remaining(t, s, key); got != 100-spent[key] {
				t.Fatalf("%q has %d left, want %d", key, got, 100-spent[key])
			}
		}
	})
}

func TestGoroutinesShareALimitExactly(t *testing.T) {
	const rate, burst, callers, calls, step = 5_000, 5_000, 8, 4_000, 20 * time.Microsecond // a token comes every 200 µs
	n := newNow()
	s := memstore.New(memstore.Config{Clock: n.clock})
	defer s.Close()
	limit, err := store.NewLimit(rate, time.Second, burst)
	if err != nil {
		t.Fatal(err)
	}
	c := store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: 1}
	var allowed, denied atomic.Int64
	var wg sync.WaitGroup
	begin := n.clock()
	for range callers {
		wg.Go(func() {
			for range calls {
				n.advance(step)
				if take(t, s, c).Allowed {
					allowed.Add(1)
				} else {
					denied.Add(1)
				}
			}
		})
	}
	wg.Wait()
	// Less than a token comes while the bucket is full, before the first call, and the last may come after all calls.
	most := burst + int64(rate*n.clock().Sub(begin).Seconds())
	if n := allowed.Load(); n > most || n < most-2 || denied.Load() == 0 {
		t.Errorf("%d allowed and %d denied, want at most %d, and 2 less at least", n, denied.Load(), most)
	}
}

// A key may be a part of something large, such as the header of a request, which must not be kept with it.
func TestKeysAndPoliciesAreCopied(t *testing.T) {
	s := memstore.New(memstore.Config{})
	defer s.Close()
	bytes := []byte("policy key")
	text := unsafe.String(&bytes[0], len(bytes))
	c := charge(t, text[7:], 60)
	c.Policy = text[:6]
	take(t, s, c)
	copy(bytes, "POLICY KEY") // as if the text had been something else all along
	c.Policy, c.Key, c.Cost = "policy", "key", 0
	if left := take(t, s, c).Remaining; left != 40 {
		t.Errorf("%d left of the bucket, want 40", left)
	}
	if fault := s.Check(); fault != "" {
		t.Error(fault)
	}
}
