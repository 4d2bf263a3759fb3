package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A held bucket that is full is forgotten before buckets of its policy that are not, and after all others that are full.
func TestAHeldBucketMakesRoom(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{MaxKeys: 4, Clock: n.clock})
	s.Close() // without the sweep
	large, small := policy(t, "p", 1, time.Hour, 171), policy(t, "p", 10, time.Second, 10)
	for i, key := range []string{"first", "second"} {
		c := large(key)
		c.Cost = int64(100 + i) // the second is held for longer
		take(t, s, c)
		take(t, s, small(key))
	}
	spent, full := policy(t, "other", 1, time.Hour, 171), policy(t, "other", 1, time.Second, 1)
	take(t, s, spent("spent"))
	take(t, s, full("full"))
	n.advance(10 * time.Second)
	for i, want := range []map[string]bool{
		{"first": true, "second": true, "spent": true},
		{"second": true, "spent": true},
		{"spent": true},
	} {
		c := large(fmt.Sprint("new", i))
		c.Cost = 50
		take(t, s, c)
		for _, key := range []string{"first", "second", "spent", "full"} {
			kept := false
			for bucket := range s.Spent() {
				kept = kept || bucket[1] == key
			}
			if kept != want[key] {
				t.Errorf("after %d new ones, %s is kept: %t", i+1, key, kept)
			}
		}
		if fault := s.Check(); fault != "" {
			t.Fatal(fault)
		}
	}
	if got := s.Stats().Memory.Evicted["p"]; got != 2 {
		t.Errorf("%d evictions are counted, want 2", got)
	}
}

// A client that makes up keys of a policy ends no hold of another.
func TestMintedKeysForgetNoHeldBucketOfAnotherPolicy(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{MaxKeys: 4, Clock: n.clock})
	s.Close() // without the sweep
	large, small, other := policy(t, "p", 1, time.Hour, 171), policy(t, "p", 10, time.Second, 10), policy(t, "other", 1, time.Hour, 171)
	c := large("held")
	c.Cost = 171
	take(t, s, c)
	take(t, s, small("held"))
	n.advance(10 * time.Second)
	for i := range 20 {
		take(t, s, other(i))
	}
	if take(t, s, c).Allowed {
		t.Error("the large burst came back")
	}
	if got := s.Stats().Memory.Evicted["p"]; got != 0 {
		t.Errorf("%d evictions are counted, want none", got)
	}
}

// What is kept of a hold is dropped when it has ended, also if its bucket stays in use.
func TestAHoldEndsThoughItsBucketIsInUse(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{Clock: n.clock})
	s.Close()
	large, small := policy(t, "p", 1, time.Second, 171), policy(t, "p", 10, time.Second, 10)
	const keys = 100
	for i := range keys {
		c := large(i)
		c.Cost = 171
		take(t, s, c)
	}
	for second := range 180 {
		for i := range keys {
			take(t, s, small(i))
		}
		n.advance(time.Second)
		s.Forget(0)
		if kept, asides := s.Len(), s.Asides(); second < 170 && (kept != keys || asides != keys) || second > 173 && asides > 0 {
			t.Fatalf("after %d s, %d buckets are kept, and %d holds", second+1, kept, asides)
		}
		if fault := s.Check(); fault != "" {
			t.Fatal(fault)
		}
	}
}
