package storetest

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

var timeRules = []rule{
	{"after exactly RetryAfter a charge is allowed, and a microsecond before it is not", func(r *rig) {
		for i, limit := range slowToFill(r) {
			c := store.Charge{Policy: "p", Key: string(rune('a' + i)), Limit: limit, Cost: limit.Capacity / limit.Unit}
			r.allow(c)
			for _, cost := range []int64{1, (c.Cost + 1) / 2, c.Cost} {
				c.Cost = cost
				retry := r.deny(c).RetryAfter
				r.advance(retry - time.Microsecond)
				if got := r.deny(c).RetryAfter; got != time.Microsecond {
					r.Fatalf("RetryAfter is %v, want 1µs", got)
				}
				r.advance(time.Microsecond)
				r.allow(c)
			}
		}
	}},
	{"after exactly ResetAfter a bucket is full, and a microsecond before it is not", func(r *rig) {
		for i, limit := range slowToFill(r) {
			c := store.Charge{Policy: "p", Key: string(rune('a' + i)), Limit: limit, Cost: limit.Capacity / limit.Unit}
			reset := r.allow(c).ResetAfter
			r.advance(reset - time.Microsecond)
			r.deny(c)
			r.advance(time.Microsecond)
			r.want(r.peek(c), store.State{Allowed: true, Remaining: c.Cost})
			r.allow(c)
		}
	}},
	{"a bucket never holds more than its burst", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, time.Second, 5), Cost: 5}
		r.allow(c)
		r.advance(1000 * time.Hour)
		r.allow(c)
		c.Cost = 1
		r.deny(c)
	}},
	{"a rate that does not divide the second is exact in the long run", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(7, time.Second, 5_000), Cost: 5_000}
		r.allow(c)
		c.Cost = 1
		allowed := 0
		for range 1000 { // 10 s in steps of 10 ms
			r.advance(10 * time.Millisecond)
			if ok, _ := r.take(c); ok {
				allowed++
			}
		}
		if want := 7 * 10; allowed != want {
			r.Fatalf("%d allowed, want %d", allowed, want)
		}
	}},
	{"time that runs backwards neither grants nor drains", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(10, time.Second, 10), Cost: 5}
		r.allow(c)
		r.advance(-time.Second)
		r.want(r.peek(c), store.State{Allowed: true, Remaining: 5, ResetAfter: 500 * time.Millisecond})
		r.allow(c)
		c.Cost = 1
		for range 20 { // alternately now and a second ago
			r.deny(c)
			r.advance(time.Second)
			r.deny(c)
			r.advance(-time.Second)
		}
		r.advance(time.Second + 100*time.Millisecond)
		r.allow(c)
		r.deny(c)
	}},
	{"a changed limit neither refills a bucket nor leaves it stuck", func(r *rig) {
		old, now := r.limit(60, time.Minute, 10), r.limit(7, time.Second, 20)
		c := store.Charge{Policy: "p", Key: "k", Limit: old, Cost: 8}
		r.allow(c)
		c.Limit, c.Cost = now, 3
		if s := r.deny(c); s.Remaining != 2 {
			r.Fatalf("Remaining is %d after the change, want the 2 that were left", s.Remaining)
		}
		c.Cost = 2
		r.allow(c)
		c.Cost = 7
		r.advance(time.Second - time.Microsecond)
		r.deny(c)
		r.advance(time.Microsecond)
		r.allow(c) // at the new rate
	}},
	{"a lowered burst cuts a bucket to it", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(100, time.Second, 100), Cost: 1}
		r.allow(c)
		c.Limit = r.limit(1, time.Second, 5)
		r.want(r.peek(c), store.State{Allowed: true, Remaining: 5})
	}},
	{"a denial under another limit leaves the bucket as it was", func(r *rig) {
		old, other := r.limit(60, time.Minute, 10), r.limit(1, time.Hour, 2)
		c := store.Charge{Policy: "p", Key: "k", Limit: old, Cost: 5}
		r.allow(c)
		c.Limit, c.Cost = other, 3
		r.deny(c)
		c.Limit, c.Cost = old, 5
		r.allow(c)
	}},
}
