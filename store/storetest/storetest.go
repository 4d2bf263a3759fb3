// Package storetest tests whether a [store.Store] keeps the contract. Run it in the tests of a Store that you
// write:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T, clock func() time.Time) store.Store {
//			return ratelimit.Must(memstore.New(memstore.Config{Clock: clock}))
//		})
//	}
//
// Every Store and every decorator of this module passes these tests.
//
// # What is tested
//
// Each rule of the contract is a subtest with the rule as its name, such as "a refund adds tokens, at most to full".
// [RunSequence] then makes random calls. Each answer is compared with exact arithmetic. The rules for Inspect, for
// blocks, for Stats and for sets of values run only if the Store is a [store.Inspector], a [store.Blocker], a
// [store.StatsReporter] and a [store.Values].
//
// # The clock
//
// The tests move the clock that they pass to [Open]. If the Store forgets buckets by another clock, such as Redis
// does with a TTL, implement [Forgetter] to test that, too.
package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Open returns an empty Store that uses clock. It registers its cleanup with t. The clock is safe for concurrent use.
type Open func(t *testing.T, clock func() time.Time) store.Store

// A Forgetter is a Store that forgets full buckets when a test asks for it. Implement it for a Store that forgets
// by another clock than that of the test. It must be an Inspector.
type Forgetter interface {
	store.Store
	store.Inspector

	// Forget forgets the buckets that the Store would forget in the time d. The test has moved the clock forwards
	// by d since the last call.
	Forget(d time.Duration)
}

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
	test func(r *rig)
}

var rules = slices.Concat(chargeRules, debtRules, callRules, setRules, limitRules, quotaRules,
	only[store.Blocker](slices.Concat(blockRules, blockedQuotaRules)), lockRules, only[store.Inspector](inspectRules),
	only[store.StatsReporter](statsRules), concurrencyRules, slotRules, only[store.Blocker](slotBlockRules),
	only[store.Inspector](slotInspectRules), only[store.StatsReporter](slotStatsRules), only[store.Values](valueRules))

// only omits the rules for a Store that is no S.
func only[S any](rules []rule) []rule {
	for i := range rules {
		test := rules[i].test
		rules[i].test = func(r *rig) {
			if is[S](r) {
				test(r)
			}
		}
	}
	return rules
}
