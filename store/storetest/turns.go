package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// grantInTurn charges some buckets under two or three limits in random turns, with random waits. It checks that within any
// time t, a bucket grants at most the sum over its limits of burst + rate*t.
func grantInTurn(r *rig, buckets, steps int) {
	random := rand.New(rand.NewPCG(uint64(buckets), uint64(steps)))
	for n := range buckets {
		limits := make([]store.Limit, 2+random.IntN(2))
		var burst, rate float64 // of all: tokens, and tokens a microsecond
		for i := range limits {
			// Redis forgets a bucket by its own clock, twice the time to full after a charge: here, after 6 s at least.
			per := []time.Duration{time.Minute, time.Hour, 24 * time.Hour}[random.IntN(3)]
			limits[i] = r.limit(1+random.Int64N(20), per, 1+random.Int64N(200))
			burst += float64(limits[i].Capacity / limits[i].Unit)
			rate += float64(limits[i].Refill) / float64(limits[i].Unit)
		}
		used := 0.0 // what a bucket of burst and rate would lack
		for step := range steps {
			c := store.Charge{Policy: fmt.Sprint("turns", n), Key: "k", Limit: limits[random.IntN(len(limits))], Cost: 1}
			switch random.IntN(4) {
			case 0:
			case 1:
				c.Cost = 1 + random.Int64N(c.Limit.Capacity/c.Limit.Unit)
			default:
				c.Cost = max(1, r.peek(c).Remaining)
			}
			if ok, _ := r.take(c); ok {
				used += float64(c.Cost)
			}
			if used > burst+1e-6 {
				r.Fatalf("step %d: %+v have granted %v tokens more than they refill, want at most %v", step, limits, used, burst)
			}
			other := limits[random.IntN(len(limits))]
			fill := time.Duration(other.Capacity/other.Refill+1) * time.Microsecond
			var wait time.Duration
			switch random.IntN(5) {
			case 0:
			case 1:
				wait = fill / time.Duration(1+random.IntN(100))
			case 2:
				wait = r.peek(store.Charge{Policy: c.Policy, Key: c.Key, Limit: other}).ResetAfter
			default:
				wait = fill + time.Duration(random.IntN(3))*time.Millisecond
			}
			r.later(wait)
			used = max(0, used-rate*float64(wait.Microseconds()))
		}
	}
}
