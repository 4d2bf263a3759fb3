package memstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A copy of a bucket holds what the bucket holds, by whatever clock, and answers as it does from then on.
func TestRestoreIsTheInverseOfInspect(t *testing.T) {
	n := newNow()
	of, to := memstore.New(memstore.Config{Clock: n.clock}), memstore.New(memstore.Config{Clock: func() time.Time {
		return time.Unix(0, n.nanoseconds.Load()-time.Date(2026, 5, 22, 0, 0, 0, 0, time.UTC).UnixNano()) // in 1970
	}})
	of.Close()
	to.Close()
	limits := []store.Limit{}
	for _, l := range []struct {
		rate  int64
		per   time.Duration
		burst int64
	}{{1, time.Second, 10}, {7, time.Second, 30}, {3, time.Hour, 5}, {1, 70 * 365 * 24 * time.Hour, 1}, {1_000_000, time.Second, 1000}} {
		limit, err := store.NewLimit(l.rate, l.per, l.burst)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, limit)
	}
	random := rand.New(rand.NewPCG(18, 0))
	for i := range 5000 {
		c := store.Charge{Policy: fmt.Sprint("p", random.IntN(2)), Key: fmt.Sprint("k", random.IntN(5)), Limit: limits[random.IntN(len(limits))], Cost: random.Int64N(12) - 1}
		if random.IntN(10) == 0 {
			c.Key = strings.Repeat(c.Key, 300)
		}
		switch random.IntN(6) {
		case 0:
			c.Owed = c.Cost > 0
		case 1:
			c.Cost = 0
			c.Block = time.Duration(random.IntN(5000)-500) * time.Millisecond
		case 2:
			c.Cost = max(1, c.Cost)
			c.Block = time.Duration(random.IntN(5000)) * time.Millisecond
		case 3:
			if random.IntN(3) == 0 {
				c.Cost = store.Reset
			}
		}
		take(t, of, c)
		if random.IntN(100) == 0 {
			n.advance(20 * 365 * 24 * time.Hour / time.Duration(1+random.IntN(100)))
		}
		n.advance(time.Duration(random.IntN(2000)) * time.Millisecond)
		want := inspect(t, of, c)
		to.Restore(c.Policy, c.Key, want)
		if got := inspect(t, to, c); got != want {
			t.Fatalf("step %d: %+v, want %+v", i, got, want)
		}
		n.advance(time.Duration(random.IntN(2000)) * time.Millisecond)
		if got, want := inspect(t, to, c), inspect(t, of, c); got != want {
			t.Fatalf("step %d, later: %+v, want %+v", i, got, want)
		}
		c.Cost, c.Owed, c.Block = 1, false, 0
		if got, want := take(t, to, c), take(t, of, c); got != want {
			t.Fatalf("step %d: %+v, want %+v", i, got, want)
		}
		if i%10 == 0 {
			if fault := to.Check(); fault != "" {
				t.Fatalf("step %d: %s", i, fault)
			}
		}
	}
}

func inspect(t *testing.T, s *memstore.Store, c store.Charge) store.Bucket {
	t.Helper()
	b, err := s.Inspect(t.Context(), c.Policy, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRestoreOfNothingRemovesABucket(t *testing.T) {
	s := memstore.New(memstore.Config{Clock: newNow().clock})
	defer s.Close()
	c := charge(t, "k", 5)
	take(t, s, c)
	for range 2 {
		s.Restore(c.Policy, c.Key, store.Bucket{})
		if b := inspect(t, s, c); b != (store.Bucket{}) || s.Len() != 0 {
			t.Fatalf("%+v, and %d are kept", b, s.Len())
		}
	}
}

// A restored bucket is one like others: it makes room, and it is forgotten when it is full, or its block has ended.
func TestRestoredBucketsAreForgotten(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{MaxKeys: 100, Clock: n.clock})
	defer s.Close()
	limit := charge(t, "k", 1).Limit
	for i := range 500 {
		b := store.Bucket{Limit: limit, Credits: int64(i%100) * limit.Unit, Age: time.Duration(i) * time.Hour}
		if i%50 == 0 {
			b.Blocked = time.Minute
		}
		s.Restore("p", fmt.Sprint("k", i), b)
		if fault := s.Check(); fault != "" || s.Len() > 100 {
			t.Fatalf("%d: %d are kept: %s", i, s.Len(), fault)
		}
	}
	n.advance(time.Hour)
	s.Sweep()
	if s.Len() != 0 {
		t.Fatalf("%d are kept, want none", s.Len())
	}
}

func TestRestoreSetsTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		defer s.Close()
		limit := charge(t, "k", 1).Limit
		s.Restore("p", "k", store.Bucket{Limit: limit, Credits: limit.Capacity - 1, Age: math.MaxInt64})
		time.Sleep(2 * time.Second)
		if s.Len() > 0 {
			t.Fatal("a full bucket is kept")
		}
	})
}

func TestRestorePanics(t *testing.T) {
	s := memstore.New(memstore.Config{})
	defer s.Close()
	limit := charge(t, "k", 1).Limit
	for name, restore := range map[string]func(){
		"no policy": func() { s.Restore("", "k", store.Bucket{Limit: limit}) },
		"no key":    func() { s.Restore("p", "", store.Bucket{Limit: limit}) },
		"a limit":   func() { s.Restore("p", "k", store.Bucket{Limit: store.Limit{Unit: 1}}) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "memstore: Restore: ") {
					t.Errorf("%s: panic of %q", name, text)
				}
			}()
			restore()
		}()
	}
}
