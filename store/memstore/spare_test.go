package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// What a bucket has not refilled is forgotten with the bucket, however that is.
func TestSparesGoWithTheirBuckets(t *testing.T) {
	clock := newNow()
	s := memstore.New(memstore.Config{MaxKeys: 20, Clock: clock.clock})
	defer s.Close()
	limit, err := store.NewLimit(1, time.Second, 10)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for step := range 20_000 {
		keys := r.Perm(40)
		charges := make([]store.Charge, 1+r.IntN(3))
		for i := range charges {
			charges[i] = store.Charge{Policy: "p", Key: fmt.Sprint(keys[i]), Limit: limit, Cost: r.Int64N(3)}
			switch r.IntN(4) {
			case 0:
				charges[i].Owed, charges[i].Refilled, charges[i].Outage = true, 1+r.Int64N(20), time.Minute
			case 1:
				if r.IntN(8) == 0 {
					charges[i].Cost = store.Reset
				}
			}
		}
		if _, err := s.Take(t.Context(), charges, make([]store.State, len(charges))); err != nil {
			t.Fatal(err)
		}
		if r.IntN(10) == 0 {
			clock.advance(time.Duration(r.Int64N(int64(5 * time.Second))))
			s.Sweep()
		}
		if fault := s.Check(); fault != "" {
			t.Fatalf("step %d: %s", step, fault)
		}
	}
}

// As those of buckets are: what a caller hands over may be a part of something large, or be reused.
func TestNamesOfSparesAreCopied(t *testing.T) {
	clock := newNow()
	s := memstore.New(memstore.Config{Clock: clock.clock})
	defer s.Close()
	bytes := []byte("policy key")
	text := unsafe.String(&bytes[0], len(bytes))
	c := charge(t, "key", 1)
	c.Policy = "policy"
	take(t, s, c)
	clock.advance(time.Minute)
	c.Policy, c.Key = text[:6], text[7:]
	c.Owed, c.Refilled, c.Outage = true, 25, 30*time.Second // while it was full
	left := take(t, s, c).Remaining
	copy(bytes, "POLICY KEY") // as if the text had been something else all along
	if fault := s.Check(); fault != "" {
		t.Error(fault)
	}
	c.Policy, c.Key = "policy", "key"
	if again := take(t, s, c).Remaining; left != 99 || again != 99-1-20 {
		t.Errorf("%d left, and %d after the same charge again, want 99 and 78: 5 of the 30 seconds were left over", left, again)
	}
}
