package denialcache_test

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

// block blocks c's bucket for d, or unblocks it if d is 0.
func block(t testing.TB, s store.Store, c store.Charge, d time.Duration) {
	t.Helper()
	if degraded, err := store.SetBlock(t.Context(), s, c.Policy, c.Key, store.Block{For: d}); degraded || err != nil {
		t.Fatal(degraded, err)
	}
}

func TestDenialsOfABlockedBucketAreAnsweredWithoutTheStore(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxAge: time.Hour})
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 5), Cost: 1}
	const d = 10 * time.Minute
	block(t, r.Store, c, d)
	r.Asks(c) // a block by itself is remembered by no one
	for _, passed := range []time.Duration{0, time.Second, 5 * time.Minute} {
		r.advance(passed)
		left := d - passed
		want := store.State{Blocked: true, RetryAfter: left, ResetAfter: left}
		for _, c := range []store.Charge{c, {Policy: "p", Key: "k", Limit: c.Limit, Cost: 5, MaxWait: time.Minute}, {Policy: "p", Key: "k", Limit: c.Limit, Cost: 2, Lock: time.Hour}} {
			ok, states, asked := r.Take(c)
			if ok || asked {
				t.Fatalf("after %v of %+v: %t, asked %t", passed, c, ok, asked)
			}
			r.Want(states[0], want)
		}
		r.advance(-passed)
	}

	// The clock of the store may be faster by 0.1 %.
	r.advance(d - d/2000)
	r.Want(r.Asks(c), store.State{Blocked: true, RetryAfter: d / 2000, ResetAfter: d / 2000})
	r.advance(d / 2000)
	if ok, _, _ := r.Take(c); !ok {
		t.Fatal("denied after the block")
	}
}

// A bucket that lacks tokens, too, is answered for by the longer of the two waits.
func TestDenialsOfABlockedBucketThatLacksTokens(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxAge: time.Hour})
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Minute, 10), Cost: 10}
	r.Asks(c)
	block(t, r.Store, c, 5*time.Minute)
	c.Cost = 1
	r.Asks(c)
	r.advance(time.Minute)
	for cost, retry := range map[int64]time.Duration{1: 4, 5: 4, 6: 5, 10: 9} {
		c.Cost = cost
		_, states, asked := r.Take(c)
		if asked {
			t.Errorf("asked for %d", cost)
		}
		r.Want(states[0], store.State{Blocked: true, RetryAfter: retry * time.Minute, ResetAfter: 9 * time.Minute})
	}
}

// What a State does not say is asked for.
func TestDenialsThatMayNotBeOfTheBlockAreNotRemembered(t *testing.T) {
	limit := teststore.Limit(t, 1, time.Minute, 10)
	for name, c := range map[string]struct {
		spent, cost int64
		block       time.Duration
	}{
		"the wait for tokens is longer": {10, 5, 4 * time.Minute},
		"as long":                       {10, 5, 5 * time.Minute},
		"a whole burst":                 {0, 10, 5 * time.Minute},
		"never":                         {0, 11, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, denialcache.Config{})
			spent := store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: c.spent}
			r.Asks(spent)
			block(t, r.Store, spent, c.block)
			one := store.Charge{Policy: "p", Key: "k", Limit: limit, Cost: c.cost}
			first := r.Asks(one)
			if !first.Blocked || first.Allowed {
				t.Fatalf("%+v", first)
			}
			r.Want(r.Asks(one), first)
		})
	}
}

func TestAnUnblockElsewhereIsSeenWithinMaxAge(t *testing.T) {
	r := newRig(t, denialcache.Config{MaxAge: time.Second})
	c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 5), Cost: 1}
	block(t, r.Store, c, time.Hour)
	r.Asks(c)
	block(t, r.Behind.Store, c, 0)
	r.advance(time.Second)
	if ok, _, asked := r.Take(c); ok || asked {
		t.Errorf("%t, asked %t: the test is too late", ok, asked)
	}
	r.advance(time.Microsecond)
	if ok, _, asked := r.Take(c); !ok || !asked {
		t.Errorf("%t, asked %t", ok, asked)
	}
	// A block elsewhere is seen at once, because nothing is remembered of a bucket that allows.
	block(t, r.Behind.Store, c, time.Hour)
	if ok, _, asked := r.Take(c); ok || !asked {
		t.Errorf("%t, asked %t", ok, asked)
	}
}

// A limit that adds much in a microsecond does not overflow with a long block.
func TestDenialsOfALongBlockUnderAFastLimit(t *testing.T) {
	r := newRig(t, denialcache.Config{})
	c := store.Charge{Policy: "p", Key: "k", Limit: store.Limit{Unit: 1, Refill: 1 << 52, Capacity: 1 << 52}, Cost: 1}
	d := (1<<40 + 1000) * time.Microsecond
	block(t, r.Store, c, d)
	r.Asks(c)
	_, states, asked := r.Take(c)
	if asked {
		t.Error("asked")
	}
	r.Want(states[0], store.State{Blocked: true, RetryAfter: d, ResetAfter: d})
}
