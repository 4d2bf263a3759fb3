// Package storetest tests whether a [store.Store] keeps the contract. Run it in the tests of a Store that you
// write:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
//			return memstore.New(memstore.Config{Clock: clock})
//		})
//	}
//
// Every Store and every decorator of this module passes these tests.
//
// # What is tested
//
// Each rule of the contract is a subtest with the rule as its name, such as "a refund adds tokens at most to full".
// [RunSequence] then makes random calls and compares each answer with exact arithmetic. The rules for Inspect run
// only if the Store is a [store.Inspector], and those for Stats only if it is a [store.StatsReporter].
//
// # The clock
//
// The tests move the clock that they pass to [Open]. If the Store forgets buckets by another clock, such as Redis
// does with a TTL, implement [Forgetter] to test that, too.
package storetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Open returns an empty Store that uses clock. It registers its cleanup with t. The clock is safe for concurrent
// use.
type Open func(t *testing.T, clock func() time.Time) store.Store

// Run tests every rule of the contract in a subtest, and then a random sequence of 500 calls.
func Run(t *testing.T, open Open) {
	RunRules(t, open)
	t.Run("a random sequence of calls is answered as by exact arithmetic", func(t *testing.T) {
		RunSequence(t, open, 500, 1)
	})
}

// RunRules is [Run] without the random sequence.
func RunRules(t *testing.T, open Open) {
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			rule.test(newRig(t, open))
		})
	}
}

// A rule is a sentence of the contract and its test.
type rule struct {
	name string
	test func(*rig)
}

var rules = concat(chargeRules, timeRules, relimitRules, waitRules, owedRules, pastRules, setRules, callRules, resetRules, blockRules, lockRules, inspectRules, statsRules, concurrencyRules)

func concat(lists ...[]rule) (all []rule) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// A rig is a Store under test and its clock.
type rig struct {
	*testing.T
	store store.Store
	nanos atomic.Int64
}

func newRig(t *testing.T, open Open) *rig {
	r := &rig{T: t}
	// A day with nothing special about it, to the microsecond.
	r.nanos.Store(time.Date(2026, 5, 23, 10, 20, 30, 123_456_000, time.UTC).UnixNano())
	r.store = open(t, func() time.Time { return time.Unix(0, r.nanos.Load()) })
	return r
}

func (r *rig) advance(d time.Duration) { r.nanos.Add(int64(d)) }

// limit compiles a limit that must fit.
func (r *rig) limit(rate int64, per time.Duration, burst int64) store.Limit {
	r.Helper()
	l, err := store.NewLimit(rate, per, burst)
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// take makes a call that must not fail.
func (r *rig) take(charges ...store.Charge) (bool, []store.State) {
	r.Helper()
	states := make([]store.State, len(charges))
	ok, err := r.store.Take(context.Background(), charges, states)
	if err != nil {
		r.Fatalf("Take(%+v): %v", charges, err)
	}
	return ok, states
}

// allow makes a call of one charge that must be allowed.
func (r *rig) allow(c store.Charge) store.State {
	r.Helper()
	ok, states := r.take(c)
	if !ok || !states[0].Allowed {
		r.Fatalf("%+v was denied: ok %t, state %+v", c, ok, states[0])
	}
	return states[0]
}

// deny makes a call of one charge that must be denied.
func (r *rig) deny(c store.Charge) store.State {
	r.Helper()
	ok, states := r.take(c)
	if ok || states[0].Allowed {
		r.Fatalf("%+v was allowed: ok %t, state %+v", c, ok, states[0])
	}
	return states[0]
}

// peek returns the state of a charge's bucket and changes nothing.
func (r *rig) peek(c store.Charge) store.State {
	r.Helper()
	c.Cost, c.MaxWait, c.Shadow, c.Owed, c.Refilled, c.Block = 0, 0, false, false, 0, 0
	return r.allow(c)
}

func (r *rig) want(got, want store.State) {
	r.Helper()
	if got != want {
		r.Fatalf("state is\n\t%+v, want\n\t%+v", got, want)
	}
}
