package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a Store without its sweep, which would forget full buckets at times of its own. A clock that goes backwards
// would tell.
func open(_ *testing.T, clock func() time.Time) store.Store {
	s := ratelimit.Must(memstore.New(memstore.Config{Clock: clock}))
	s.Close()
	return s
}

func TestContract(t *testing.T) { storetest.Run(t, open) }

func TestCalendar(t *testing.T) {
	for seed := range uint64(testsize.Of(1, 10)) {
		storetest.RunCalendar(t, open, 4_000, seed)
	}
}

func TestSequence(t *testing.T) { storetest.RunSequence(t, open, testsize.Of(2_000, 40_000), 2) }

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
	return store.Charge{Policy: "p", Key: key, Limit: teststore.Limit(t, 1, time.Second, 100), Cost: cost}
}

// policy returns a function that makes charges of one token.
func policy(t testing.TB, name string, rate int64, per time.Duration, burst int64) func(key any) store.Charge {
	t.Helper()
	limit := teststore.Limit(t, rate, per, burst)
	return func(key any) store.Charge {
		return store.Charge{Policy: name, Key: fmt.Sprint(key), Limit: limit, Cost: 1}
	}
}

// openAt returns a Store without a sweep, by the clock n.
func openAt(t testing.TB, n *now, maxKeys int) *memstore.Store {
	s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: maxKeys, Clock: n.clock}))
	s.Close()
	return s
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

func TestFullBucketsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ratelimit.Must(memstore.New(memstore.Config{}))
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
	s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 40_000, Clock: n.clock}))
	defer s.Close()
	for i := range 30_000 {
		c := charge(t, fmt.Sprint("k", i), 1)
		if i%100 == 0 {
			c.Cost = 100
		}
		take(t, s, c)
	}
	n.advance(2 * time.Second)
	s.Sweep()
	if got, bytes := s.Len(), s.Stats().Memory.Bytes; got != 300 || bytes > 600_000 {
		t.Errorf("%d buckets, want 300; they take %d bytes", got, bytes)
	}
	for i := range 300 {
		if got := remaining(t, s, fmt.Sprint("k", 100*i)); got != 2 {
			t.Fatalf("%d has %d left, want 2", i, got)
		}
	}
}

func TestCloseStopsTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ratelimit.Must(memstore.New(memstore.Config{}))
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
	s := ratelimit.Must(memstore.New(memstore.Config{Clock: n.clock}))
	defer s.Close()
	r := rand.New(rand.NewPCG(8, 0))
	spent := make(map[string]int64)
	for step := range testsize.Of(20_000, 100_000) {
		key := fmt.Sprint("k", r.IntN(10_000))
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
	for i := range 10_000 {
		key := fmt.Sprint("k", i)
		if got := remaining(t, s, key); got != 100-spent[key] {
			t.Fatalf("%s has %d left, want %d", key, got, 100-spent[key])
		}
	}
}

func TestMaxKeysIsABound(t *testing.T) {
	most := testsize.Of(3_000, 20_000)
	s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: most}))
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
	s := ratelimit.Must(memstore.New(memstore.Config{}))
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

func TestMaxKeysMustNotBeNegative(t *testing.T) {
	ratetest.CheckText(t, fmt.Sprint(ratetest.Err(memstore.New(memstore.Config{MaxKeys: -1}))), "MaxKeys -1: must be positive")
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 200, 1, 200, 2})
	f.Add([]byte("aAbBcCdDeEfFaAaA"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		s := ratelimit.Must(memstore.New(memstore.Config{Clock: newNow().clock}))
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
	s := ratelimit.Must(memstore.New(memstore.Config{Clock: n.clock}))
	defer s.Close()
	c := policy(t, "p", rate, time.Second, burst)("k")
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

// Another limit gives a bucket at most one burst of it, besides what the old one had allowed.
func TestALimitThatChangesGivesAtMostItsBurst(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 1))
	for range 100 {
		n := newNow()
		s := openAt(t, n, 0)
		for changes := range int64(2) {
			rate, burst := 1+r.Int64N(100), 1+r.Int64N(1000)
			c, begin, allowed := policy(t, "p", rate, time.Minute, burst)("k"), n.clock(), int64(0)
			for range 4 {
				for take(t, s, c).Allowed {
					allowed++
				}
				n.advance(time.Duration(r.Int64N(int64(time.Minute))))
				s.Forget(0)
			}
			if most := burst + changes + int64(float64(rate)*n.clock().Sub(begin).Minutes()); allowed > most {
				t.Fatalf("after %d changes %d of %d per minute and a burst of %d are allowed, want at most %d", changes, allowed, rate, burst, most)
			}
		}
	}
}

// A name may be a part of something large, such as the header of a request, which must not be kept with it.
func TestNamesAreCopied(t *testing.T) {
	for name, blocks := range map[string]bool{"of a bucket": false, "of a block": true} {
		s := openFull(t, 0)
		bytes := []byte("policy key")
		text := unsafe.String(&bytes[0], len(bytes))
		c := charge(t, text[7:], 60)
		c.Policy = text[:6]
		if !blocks {
			take(t, s, c)
		} else if _, err := s.Block(t.Context(), c.Policy, c.Key, store.Block{For: time.Hour, Reason: text}); err != nil {
			t.Fatal(err)
		}
		copy(bytes, "POLICY KEY") // as if the text had been something else all along
		c.Policy, c.Key, c.Cost = "policy", "key", 0
		if state := take(t, s, c); state.Blocked != blocks || !blocks && state.Remaining != 40 {
			t.Errorf("%s: %+v", name, state)
		}
		if b, err := s.Inspect(t.Context(), "policy", "key"); err != nil || blocks && b.Reason != "policy key" {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
		if fault := s.Check(); fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
}
