package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// openFull returns a Store of a single shard, with a clock that stands still.
func openFull(t testing.TB, maxKeys int) *memstore.Store {
	return openAt(t, newNow(), maxKeys)
}

func mint(t testing.TB, s store.Store, of func(any) store.Charge, from, keys int) {
	t.Helper()
	for i := range keys {
		take(t, s, of(fmt.Sprint("minted", from+i)))
	}
}

// allowed makes calls of one bucket, and mints keys in between. It returns how many calls were allowed.
func allowed(t testing.TB, s store.Store, c store.Charge, calls int, minted func(any) store.Charge, keys int) (n int) {
	t.Helper()
	for i := range calls {
		if take(t, s, c).Allowed {
			n++
		}
		mint(t, s, minted, i*keys, keys)
	}
	return n
}

func TestMintedKeysOfAPolicyForgetNoBucketOfAnother(t *testing.T) {
	slow, fast := policy(t, "slow", 1000, 24*time.Hour, 1000), policy(t, "fast", 60, time.Minute, 10)
	spent := policy(t, "spent", 1, 24*time.Hour, 1)
	for name, c := range map[string]struct{ victim, minted func(any) store.Charge }{
		"a fast policy and a slow one":        {fast, slow},
		"a slow policy and a fast one":        {slow, fast},
		"a fast policy and one that spends":   {fast, spent},
		"a policy that spends and a fast one": {spent, fast},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 600
			s := openFull(t, most)
			mint(t, s, c.minted, -2*most, 2*most) // it is full
			victim := c.victim("victim")
			burst := int(victim.Limit.Capacity / victim.Limit.Unit)
			if n := allowed(t, s, victim, burst+50, c.minted, most/10); n != burst {
				t.Errorf("%d of a burst of %d were allowed", n, burst)
			}
			// And so many others as are its share.
			for i := range most/2 - 1 {
				take(t, s, c.victim(i))
			}
			mint(t, s, c.minted, -10*most, 2*most)
			kept := 0
			for bucket := range s.Losses() {
				if bucket[0] == victim.Policy {
					kept++
				}
			}
			if kept != most/2 {
				t.Errorf("%d buckets are kept, want %d", kept, most/2)
			}
			if fault := s.Check(); fault != "" {
				t.Error(fault)
			}
		})
	}
}

// Also those of tiers: a bucket of a fast one is full sooner, however much it has spent.
func TestMintedKeysForgetNoSpentBucketOfTheirPolicy(t *testing.T) {
	fast, slow := policy(t, "p", 100, time.Second, 10), policy(t, "p", 10, 24*time.Hour, 10)
	for name, c := range map[string]struct{ victim, minted func(any) store.Charge }{
		"of one tier":              {slow, slow},
		"of a fast and a slow one": {fast, slow},
		"of a slow and a fast one": {slow, fast},
	} {
		t.Run(name, func(t *testing.T) {
			s := openFull(t, 600)
			for i := range 300 {
				spent := c.victim(i)
				spent.Cost = 10
				take(t, s, spent)
			}
			mint(t, s, c.minted, 0, 3000)
			for i := range 300 {
				if take(t, s, c.victim(i)).Allowed {
					t.Fatalf("%d has tokens again", i)
				}
			}
		})
	}
}

// A client that makes up keys of a policy ends nothing of another.
func TestMintedKeysForgetNoBucketOfAnotherPolicyWhoseLimitChanged(t *testing.T) {
	n := newNow()
	s := openAt(t, n, 4)
	large, small, other := policy(t, "p", 1, time.Hour, 171), policy(t, "p", 10, time.Second, 10), policy(t, "other", 1, time.Hour, 171)
	c := large("changed")
	c.Cost = 171
	take(t, s, c)
	take(t, s, small("changed"))
	n.advance(10 * time.Second)
	mint(t, s, other, 0, 20)
	if take(t, s, c).Allowed {
		t.Error("the large burst came back")
	}
	if got := s.Stats().Memory.Evicted["p"]; got != 0 {
		t.Errorf("%d evictions are counted, want none", got)
	}
}

// A LimitFunc may give each key a limit that no other has.
func TestManyLimitsOfAPolicy(t *testing.T) {
	const most = 1000
	s := openFull(t, most)
	for i := range 5 * most {
		rate := int64(1 + i)
		take(t, s, policy(t, "p", rate, 24*time.Hour, rate%1000+1)(i%(3*most)))
	}
	if n := s.Len(); n != most {
		t.Errorf("%d buckets, want %d", n, most)
	}
	if n := s.Classes(); n > most {
		t.Errorf("%d classes", n)
	}
	if fault := s.Check(); fault != "" {
		t.Error(fault)
	}
}

func TestFullBucketsMakeRoomFirst(t *testing.T) {
	n := newNow()
	s := openAt(t, n, 4)
	fast, slow := policy(t, "fast", 1, time.Second, 1), policy(t, "slow", 1, time.Hour, 10)
	take(t, s, fast("a"))
	n.advance(time.Second)
	for i := range 4 {
		take(t, s, slow(i))
	}
	if n := len(s.Losses()); n != 4 {
		t.Fatalf("%d buckets", n)
	}
	for i := range 4 {
		if got := take(t, s, slow(i)).Remaining; got != 8 {
			t.Errorf("%d has %d left, want 8", i, got)
		}
	}
}

// What counts is what has been spent by now, not what had been when the bucket was kept.
func TestTheBucketThatHasSpentLeastMakesRoom(t *testing.T) {
	s := openFull(t, 4)
	for _, step := range []struct {
		charges []store.Charge
		want    map[string]int64 // left of a to h afterwards; the others are full, or forgotten
	}{
		{[]store.Charge{charge(t, "a", 50), charge(t, "b", 20), charge(t, "c", 90), charge(t, "d", 30)}, map[string]int64{"a": 50, "b": 80, "c": 10, "d": 70}},
		{[]store.Charge{charge(t, "e", 40)}, map[string]int64{"a": 50, "c": 10, "d": 70, "e": 60}},
		{[]store.Charge{charge(t, "d", 65), charge(t, "c", -80), charge(t, "f", 99)}, map[string]int64{"a": 50, "d": 5, "e": 60, "f": 1}},
		{[]store.Charge{charge(t, "e", -39), charge(t, "a", -40), charge(t, "e", 59), charge(t, "g", 50)}, map[string]int64{"d": 5, "e": 40, "f": 1, "g": 50}},
		// A look and a charge that is denied need no room.
		{[]store.Charge{charge(t, "a", 0), charge(t, "h", 101)}, map[string]int64{"d": 5, "e": 40, "f": 1, "g": 50}},
	} {
		for _, c := range step.charges {
			take(t, s, c)
		}
		for _, key := range strings.Split("abcdefgh", "") {
			want, kept := step.want[key]
			if !kept {
				want = 100
			}
			if got := remaining(t, s, key); got != want {
				t.Errorf("after %+v: %s has %d left, want %d", step.charges, key, got, want)
			}
		}
	}
}

// Whatever was charged before, what makes room is what Config.MaxKeys says. Of so few buckets, all are looked at.
func TestWhichBucketMakesRoom(t *testing.T) {
	const most = 8
	n := newNow()
	s := openAt(t, n, most)
	r := rand.New(rand.NewPCG(14, 0))
	limits := []func(any) store.Charge{
		policy(t, "", 1, time.Second, 10), policy(t, "", 10, time.Second, 10), policy(t, "", 1, time.Hour, 100), policy(t, "", 7, time.Second, 9),
	}
	forgotten := 0
	for range testsize.Of(5_000, 20_000) {
		c := limits[r.IntN(len(limits))](r.IntN(20))
		c.Policy = string("aaabbc"[r.IntN(6)])
		c.Cost = 1 + r.Int64N(9) - r.Int64N(4)
		before := s.Losses()
		take(t, s, c)
		after := s.Losses()
		if fault := s.Check(); fault != "" {
			t.Fatal(fault)
		}
		count := map[string]int{c.Policy: 0}
		for bucket := range before {
			count[bucket[0]]++
		}
		for victim, loss := range before {
			if _, kept := after[victim]; kept || loss < 0 {
				continue // a full one of any policy may make room
			}
			forgotten++
			if own := count[c.Policy]; own*len(count) >= most && victim[0] != c.Policy {
				t.Fatalf("%s of %v made room for %s", victim[0], count, c.Policy)
			} else if own*len(count) < most {
				for policy := range count {
					if count[policy] > count[victim[0]] {
						t.Fatalf("%s of %v made room for %s", victim[0], count, c.Policy)
					}
				}
			}
			for other, otherLoss := range before {
				if otherLoss < 0 || other[0] == victim[0] && otherLoss < loss {
					t.Fatalf("%v has a loss of %v, and %v %v", victim, loss, other, otherLoss)
				}
			}
		}
		n.advance(time.Duration(r.IntN(100)) * time.Millisecond)
	}
	if forgotten < 250 {
		t.Errorf("only %d made room", forgotten)
	}
}

// Of many buckets, a few are looked at. The one that makes room has spent little.
func TestOfManyBucketsOneThatHasSpentLittleMakesRoom(t *testing.T) {
	const most = 1000
	of := policy(t, "p", 1, time.Hour, most)
	s := openFull(t, most)
	for i := range most {
		c := of(i)
		c.Cost = 1 + int64(i)%(most-1)
		take(t, s, c)
	}
	const minted = 100
	sum, before := 0.0, s.Losses()
	for i := range minted {
		c := of(fmt.Sprint("minted", i))
		c.Cost = most - 1 // so that it is not the next to go
		take(t, s, c)
	}
	after := s.Losses()
	for bucket, loss := range before {
		if _, kept := after[bucket]; !kept {
			sum += loss
		}
	}
	// The least of 8 is a ninth on average, with a standard deviation of a hundredth for the mean of 100. The least of all
	// are gone towards the end.
	if mean := sum / minted; mean > 0.2 {
		t.Errorf("buckets that have spent %.2f of their bursts made room", mean)
	}
}

// If nearly all buckets of a policy are spent, a few of them go.
func TestFewSpentBucketsMakeRoomAmongMany(t *testing.T) {
	const most, spent = 600, 540
	of := policy(t, "p", 60, time.Minute, 10)
	s := openFull(t, most)
	for i := range spent {
		c := of(i)
		c.Cost = 10
		take(t, s, c)
	}
	mint(t, s, of, 0, 3000)
	gone := 0
	for i := range spent {
		if take(t, s, of(i)).Allowed {
			gone++
		}
	}
	if gone > 30 { // of a few at random it would be 33, and steps of the golden ratio find better ones
		t.Errorf("%d of %d spent buckets are forgotten", gone, spent)
	}
}

func TestLongKeysAreKeptByTheirHash(t *testing.T) {
	s := openFull(t, 600)
	if kept := teststore.LeftOnHeap(func() { teststore.LongKeys(t, func(c store.Charge) { take(t, s, c) }) }); kept > 200_000 {
		t.Errorf("300 keys of 90 KB keep %d bytes", kept)
	}
	teststore.LongKeys(t, func(c store.Charge) {
		if strings.HasSuffix(c.Key, "00") {
			if got := take(t, s, c).Remaining; got != 98 {
				t.Errorf("%d left, want 98", got)
			}
		}
	})
}
