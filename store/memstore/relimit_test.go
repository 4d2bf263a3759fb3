package memstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A client that is charged under two limits in turn gets at most the tokens of the faster rate and one burst of each. A
// store that forgot the bucket once it is full under one of them would give it a burst each time.
func TestChargedUnderTwoLimits(t *testing.T) {
	large, small := policy(t, "p", 1000, 24*time.Hour, 1000)("k"), policy(t, "p", 5, time.Second, 5)("k")
	for name, smallFor := range map[string]time.Duration{
		"a second each":    time.Second,
		"mostly the large": 10 * time.Millisecond,
		"until it is full": 3 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNow()
			s := memstore.New(memstore.Config{Clock: n.clock})
			s.Close()
			r := rand.New(rand.NewPCG(27, 0))
			allowed, limited := 0, 0.0
			flood := func(c store.Charge, d time.Duration) {
				for take(t, s, c).Allowed {
					allowed++
				}
				n.advance(time.Duration(r.Int64N(int64(2 * d))))
				s.Forget(0)
			}
			begin := n.clock()
			for n.clock().Sub(begin) < time.Hour {
				flood(large, time.Second)
				flood(small, smallFor)
			}
			limited = 1000 + 5 + 5*n.clock().Sub(begin).Seconds()
			if float64(allowed) > limited {
				t.Errorf("%d are allowed, want at most %.0f", allowed, limited)
			}
		})
	}
}

// Another limit gives a bucket at most one burst of it, besides what the old one had allowed.
func TestALimitThatChangesGivesAtMostItsBurst(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 1))
	for range 300 {
		n := newNow()
		s := memstore.New(memstore.Config{Clock: n.clock})
		s.Close()
		rate, burst := 1+r.Int64N(100), 1+r.Int64N(1000)
		before := policy(t, "p", rate, time.Minute, burst)("k")
		newRate, newBurst := 1+r.Int64N(100), 1+r.Int64N(1000)
		after := policy(t, "p", newRate, time.Minute, newBurst)("k")
		flood := func(c store.Charge, steps int) (allowed int64) {
			for range steps {
				for take(t, s, c).Allowed {
					allowed++
				}
				n.advance(time.Duration(r.Int64N(int64(time.Minute))))
				s.Forget(0)
			}
			return allowed
		}
		begin := n.clock()
		got, most := flood(before, 3), burst+int64(float64(rate)*n.clock().Sub(begin).Minutes())
		if got > most {
			t.Fatalf("%d of %d per minute and a burst of %d were allowed", got, rate, burst)
		}
		begin = n.clock()
		got, most = flood(after, 5), newBurst+1+int64(float64(newRate)*n.clock().Sub(begin).Minutes())
		if got > most {
			t.Fatalf("after %d per minute, burst %d: %d of %d per minute and a burst of %d were allowed", rate, burst, got, newRate, newBurst)
		}
	}
}

// Whatever is charged under other limits, refunded, denied or unblocked, a bucket is kept until it is full under each
// limit that charged it.
func TestNoChargeShortensHowLongABucketIsKept(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 2))
	for range 200 {
		n := newNow()
		s := memstore.New(memstore.Config{Clock: n.clock})
		s.Close()
		until := n.clock()
		for range 30 {
			c := policy(t, "p", 1+r.Int64N(10), time.Second, 1+r.Int64N(500))("k")
			c.Cost = r.Int64N(40) - 10
			c.Owed = r.IntN(4) == 0
			state := take(t, s, c)
			if full := n.clock().Add(state.ResetAfter); c.Cost != 0 && full.After(until) {
				until = full
			}
			if r.IntN(5) == 0 {
				setBlock(t, s, c, time.Millisecond)
				setBlock(t, s, c, 0)
			}
			n.advance(time.Duration(r.Int64N(int64(3 * time.Second))))
			s.Forget(0)
			if s.Len() == 0 && n.clock().Before(until) {
				t.Fatalf("forgotten %v before it is full", until.Sub(n.clock()))
			}
			if s.Len() > 0 && !n.clock().Before(until) {
				t.Fatalf("kept %v after it is full", n.clock().Sub(until))
			}
		}
	}
}

// A client that makes up keys of a policy ends nothing of another.
func TestMintedKeysForgetNoBucketOfAnotherPolicyWhoseLimitChanged(t *testing.T) {
	n := newNow()
	s := memstore.New(memstore.Config{MaxKeys: 4, Clock: n.clock})
	s.Close()
	large, small, other := policy(t, "p", 1, time.Hour, 171), policy(t, "p", 10, time.Second, 10), policy(t, "other", 1, time.Hour, 171)
	c := large("changed")
	c.Cost = 171
	take(t, s, c)
	take(t, s, small("changed"))
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
