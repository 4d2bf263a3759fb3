package storetest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// slowToFill are limits from 1 a month to 10^6 a second that take from ten minutes to decades to fill. A store may
// let a bucket expire by a clock that the test does not move. These buckets do not expire in that time.
func slowToFill(r *rig) []store.Limit {
	return []store.Limit{
		r.limit(1, 30*day, 1), r.limit(1, 30*day, 100), r.limit(31, 30*day, 500), r.limit(10_007, 30*day, 10_007), // approximated
		r.limit(5, day, 7), r.limit(3, hour, 2), r.limit(60, minute, 600), r.limit(1, second, 600), r.limit(3, second, 2_000),
		r.limit(7, second, 5_000), r.limit(333, second, 200_000), r.limit(999_983, second, 600_000_000),
		r.limit(1_000_000, second, 1_000_000_000), r.limit(1, 1500*time.Nanosecond, 400_000_000),
	}
}

// quotas are of all units, in some time zones.
func quotas(r *rig) []store.Limit {
	return []store.Limit{
		r.quota(3, store.Hour, ""), r.quota(50, store.Hour, "Asia/Kolkata"), r.quota(7, store.Day, "Europe/Berlin"), r.quota(10_000, store.Day, ""),
		r.quota(20, store.Week, "America/New_York"), r.quota(30, store.Month, ""), r.quota(1_000_000, store.Month, "Europe/Berlin"),
	}
}

// quickToFill are limits that take from half a millisecond to some seconds to fill.
func quickToFill(r *rig) []store.Limit {
	return []store.Limit{
		r.limit(1, second/1000, 3), r.limit(2_000, second, 1), r.limit(7, second/100, 20), r.limit(100, second, 5),
		r.limit(1_000, second, 100), r.limit(10, second, 10), r.limit(3, second, 10), r.limit(999_983, second, 100_000),
	}
}

// limitRules are those of a bucket whose limit changes.
var limitRules = []rule{
	{"a changed limit neither refills a bucket nor leaves it stuck", on(second, 10, allow(8, 2), limit(7, second, 20), deny(3, 2), allow(2, 0),
		wait(second-micro), deny(7, 6), wait(micro), allow(7, 0))},
	{"a lowered burst cuts a bucket to it, and a look does not", on(second, 100, allow(1, 99), limit(1, second, 5), peek(5),
		limit(1, second, 100), peek(99), limit(1, second, 5), deny(6, 5), limit(1, second, 100), peek(5))},
	{"a debt carries over to another limit", on(minute, 5, owe(12, 0), limit(3, hour, 2),
		deny(1, 0), says(store.State{RetryAfter: 160 * minute, ResetAfter: 3 * hour}))},
	{"a charge with a cost puts the bucket under its limit, whatever it is told", each(second/10, 10, map[string]step{
		"denied":              deny(1, 0),
		"never allowed":       deny(1001, 0),
		"too far off":         all(maxWait(second), deny(1, 0), maxWait(0)),
		"a shadow":            all(shadow(true), deny(1, 0), shadow(false)),
		"one of several":      withheld(store.Charge{Cost: 1}),
		"a shadow of several": withheld(store.Charge{Cost: 1, Shadow: true}),
		"owed, withheld":      withheld(store.Charge{Cost: 3, Owed: true}),
		"refunded, withheld":  withheld(store.Charge{Cost: -1}),
		"settled":             settle(1, 0),
		"blocked":             blocking(block(second), deny(1, 0)),
	}, func(use step) step { // not full, as it would be under the limit before
		return all(allow(10, 0), owe(1, 0), limit(1000, hour, 1000), use, times(5, wait(second/2), deny(1, 0)))
	})},
	{"a look leaves a bucket under its limit, and so does a reset that is withheld", each(minute, 10, map[string]step{
		"a look":           peek(5),
		"one that waits":   all(maxWait(hour), allow(0, 5), maxWait(0)),
		"one that is owed": owe(0, 5),
		"one of several":   withheld(store.Charge{}),
		"a withheld reset": withheld(store.Charge{Cost: store.Reset}),
		"a block":          blocking(block(second), block(0)),
	}, func(use step) step {
		return all(allow(5, 5), limit(1, hour, 1000), use, limit(1, minute, 10), peek(5), says(store.State{Allowed: true, Remaining: 5, ResetAfter: 5 * minute}))
	})},
	{"a bucket is not forgotten before it is full under each limit that it was charged under", each(hour, 171, map[string]step{
		"denied":     deny(1, 0),
		"by another": all(deny(1, 0), limit(1, minute, 50), deny(1, 0), limit(10, second, 10)),
		"allowed":    all(deny(1, 0), wait(second), allow(10, 0)),
		"in debt":    owe(5, 0),
		"refunded":   all(owe(10, 0), allow(-10, 0)),
		"settled":    settle(5, 0),
		"blocked":    all(deny(1, 0), blocking(block(second), wait(second/2), deny(1, 0), block(0))),
		"locked":     all(deny(1, 0), wait(second), locking(second), allow(10, 0), locking(0), wait(3*second)),
	}, func(use step) step {
		// No charge of a full bucket corrects what a Store remembers.
		small, large := limit(10, second, 10), limit(1, hour, 171)
		return all(allow(171, 0), times(3, small, use, times(5, wait(second)), peek(10), large, deny(1, 0)), small, deny(1, 0), wait(400*hour), func(b *bucket) {
			if is[Forgetter](b.rig) && b.inspect(b.name()) != (store.Bucket{}) {
				b.Fatalf("%s: it is full under all its limits, and was not forgotten", b.Key)
			}
		})
	})},
	{"limits in turn grant no more than all of them would, each with a bucket of its own", func(r *rig) {
		random := rand.New(rand.NewPCG(8, 60))
		limits := []store.Limit{r.limit(5, minute, 7), r.limit(3, hour, 200), r.limit(40, day, 30)} // forgotten after 3 s at least
		used := 0.0                                                                                 // of what all grant at once
		for range 300 {
			c := store.Charge{Policy: "p", Key: "k", Limit: limits[random.IntN(3)]}
			_, states := r.call(c) // of which a lease makes others than the model
			c.Cost = []int64{1, 1 + random.Int64N(burst(c.Limit)), max(1, states[0].Remaining)}[random.IntN(3)]
			if ok, _ := r.call(c); ok {
				used += float64(c.Cost)
			}
			if used > 7+200+30+1e-6 {
				r.Fatalf("%v tokens more than all refill, want at most their bursts", used)
			}
			full := fill(limits[random.IntN(3)])
			wait := []time.Duration{0, full / time.Duration(1+random.IntN(100)), states[0].ResetAfter, full, full + second/1000}[random.IntN(5)]
			r.wait(wait)
			used = max(0, used-wait.Hours()*(5*60+3+40.0/24))
		}
	}},
}

// withheld makes c in a call that another bucket denies.
func withheld(c store.Charge) step {
	return func(b *bucket) {
		c.Policy, c.Key, c.Limit = b.Policy, b.Key, b.Limit
		if ok, states := b.take(c, store.Charge{Policy: "another", Key: b.Key, Limit: b.Limit, Cost: math.MaxInt64}); ok {
			b.Fatalf("allowed above the burst: %+v", states)
		}
	}
}
