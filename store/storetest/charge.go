package storetest

import (
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

const micro, second, minute, hour, day = time.Microsecond, time.Second, time.Minute, time.Hour, 24 * time.Hour

// chargeRules are those of a lone charge of a bucket whose limit does not change.
var chargeRules = []rule{
	{"a bucket that was never charged is full", on(second, 5, peek(5), by("another"), allow(5, 0))},
	{"a charge takes its cost, and the state says what is left", on(second, 5,
		allow(2, 3), says(store.State{Allowed: true, Remaining: 3, ResetAfter: 2 * second}),
		allow(2, 1), says(store.State{Allowed: true, Remaining: 1, ResetAfter: 4 * second}))},
	{"what a bucket cannot pay is denied, and changes nothing", on(second, 5,
		allow(4, 1), times(10, deny(2, 1), says(store.State{Remaining: 1, RetryAfter: second, ResetAfter: 4 * second})),
		allow(1, 0))},
	{"a cost of 0 reads the state: it is always allowed and changes nothing", on(second, 1,
		allow(1, 0), times(10, peek(0)), wait(second), allow(1, 0))},
	{"a refund adds tokens, at most to full", on(second, 5,
		allow(5, 0), allow(-2, 2), allow(-2, 4), allow(-2, 5), allow(-2, 5), deny(6, 5))},
	{"a refund of any size fills a bucket, and only a reset removes it", on(hour, 600,
		allow(600, 0), limit(1, hour, 10), allow(-math.MaxInt64, 10),
		limit(1, hour, 600), peek(10), limit(1, hour, 10), reset, limit(1, hour, 600), peek(600))},
	{"a cost above the burst is never allowed, also with MaxWait", on(second, 5,
		deny(6, 5), deny(math.MaxInt64, 5), maxWait(hour), deny(6, 5), maxWait(math.MaxInt64), deny(7, 5), deny(math.MaxInt64, 5),
		says(store.State{Remaining: 5, RetryAfter: store.Never}))},
	{"after exactly RetryAfter a charge is allowed, and a microsecond before it is not", onSlow(func(l store.Limit) step {
		again := func(n int64) step { return all(deny(n, 0), waitRetry(micro), deny(n, n-1), waitRetry(0), allow(n, 0)) }
		return all(allow(burst(l), 0), again(1), again((burst(l)+1)/2), again(burst(l)))
	})},
	{"after exactly ResetAfter a bucket is full, and a microsecond before it is not", onSlow(func(l store.Limit) step {
		return all(allow(burst(l), 0), func(b *bucket) { b.rig.wait(b.last.ResetAfter - micro) },
			deny(burst(l), burst(l)-1), wait(micro), allow(burst(l), 0))
	})},
	{"a bucket never holds more than its burst", on(second, 5, allow(5, 0), wait(1000*hour), peek(5), allow(5, 0), deny(1, 0))},
	{"a rate that does not divide the second is exact in the long run", on(second, 5, limit(7, second, 5000),
		allow(5000, 0), times(1000, wait(second/100), try(1)), peek(0))},
	{"time that runs backwards neither grants nor drains", on(second/10, 10,
		allow(5, 5), shift(-second), peek(5), allow(5, 0),
		times(20, deny(1, 0), shift(second), deny(1, 0), shift(-second)),
		shift(second+second/10), allow(1, 0), deny(1, 0))},
	{"a reset removes the bucket, which is full then under any limit", each(minute, 600, map[string]step{
		"unknown":  peek(600),
		"spent":    allow(600, 0),
		"hardly":   allow(1, 599),
		"in debt":  owe(math.MaxInt64, 0),
		"refunded": all(allow(1, 599), allow(-1, 600)),
		"denied":   all(allow(600, 0), deny(1, 0)),
	}, func(use step) step {
		return all(reset, use, limit(1, second, 10), shadow(true), maxWait(hour), allow(store.Reset, 10), limit(1, hour, 900), peek(900))
	})},
}

// debtRules are those of charges that may leave a debt, and of settlements, which do not.
var debtRules = []rule{
	{"MaxWait reserves tokens to come, first come first served, and says how long to wait", on(second, 1, maxWait(3*second),
		allow(1, 0), allow(1, 0), says(store.State{Allowed: true, Wait: second, ResetAfter: 2 * second}),
		allow(1, 0), allow(1, 0), says(store.State{Allowed: true, Wait: 3 * second, ResetAfter: 4 * second}),
		deny(1, 0), says(store.State{RetryAfter: second, ResetAfter: 4 * second}))},
	{"a charge that would wait longer than MaxWait, in whole microseconds, is denied until it would not", on(second, 1,
		maxWait(1500*time.Millisecond+999), allow(1, 0), allow(1, 0),
		deny(1, 0), says(store.State{RetryAfter: second / 2, ResetAfter: 2 * second}),
		waitRetry(micro), deny(1, 0), wait(micro), allow(1, 0))},
	{"a charge without MaxWait does not overtake those that wait", on(second, 1, maxWait(second), allow(1, 0), allow(1, 0),
		maxWait(0), deny(1, 0), waitRetry(micro), deny(1, 0), wait(micro), allow(1, 0))},
	{"a refund shortens a debt, and a look in debt is allowed", on(second, 2, owe(6, 0), peek(0),
		allow(-3, 0), says(store.State{Allowed: true, ResetAfter: 3 * second}), allow(-2, 1))},
	{"MaxWait counts at most as 35 years", onSlow(func(l store.Limit) step { return all(maxWait(math.MaxInt64), times(20, try(burst(l)))) })},
	{"what is owed is charged whatever the bucket holds, also above the burst, and MaxWait has no effect", on(minute, 5, maxWait(second),
		owe(3, 2), owe(2, 0), owe(12, 0), says(store.State{Allowed: true, ResetAfter: 17 * minute, Wait: 12 * minute}),
		shadow(true), owe(1, 0), shadow(false), maxWait(0), deny(3, 0), says(store.State{RetryAfter: 16 * minute, ResetAfter: 18 * minute}))},
	{"a debt is at most 2^52 credits, from which time and refunds lead back", onSlow(func(l store.Limit) step {
		return all(owe(burst(l), 0), owe(deepest/l.Unit, 0), owe(1, 0), owe(math.MaxInt64, 0), owe(1, 0),
			wait(hour), peek(0), allow(-math.MaxInt64, burst(l)))
	})},
	{"a cost of 0 or below cannot be owed", on(minute, 5, owe(7, 0), owe(0, 0), says(store.State{Allowed: true, ResetAfter: 7 * minute}),
		owe(-4, 2), owe(store.Reset, 5))},
	{"a settlement takes what the bucket holds, at most its cost, and leaves no debt that was not there before", on(minute, 5,
		settle(2, 3), settle(math.MaxInt64, 0), says(store.State{Allowed: true, ResetAfter: 5 * minute}), settle(1, 0),
		wait(90*second), settle(2, 0), says(store.State{Allowed: true, ResetAfter: 5 * minute}),
		owe(3, 0), settle(4, 0), says(store.State{Allowed: true, ResetAfter: 8 * minute}),
		wait(4*minute), settle(7, 0), deny(1, 0), wait(minute), allow(1, 0), wait(5*minute), settle(6, 0))},
	{"a known denial keeps neither a debt nor a settlement from being charged", on(minute, 1, allow(1, 0),
		times(3, deny(1, 0), deny(1, 0), settle(1, 0), owe(1, 0)), deny(1, 0), says(store.State{RetryAfter: 4 * minute, ResetAfter: 4 * minute}),
		reset, allow(1, 0))},
}
