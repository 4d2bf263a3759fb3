package storetest

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/go-tokenbucket/ratelimit/store"
)

// blockRules are those of a block, for a Store that is a Blocker.
var blockRules = []rule{
	{"a blocked bucket denies for as long as it is blocked, and not a microsecond longer", onSlow(func(l store.Limit) step {
		during := all(deny(1, 0), wait(hour-micro), deny(1, 0), blocked(micro, false), wait(micro), blocked(0, false))
		return all(block(micro), deny(1, 0), wait(micro), allow(1, burst(l)-1), reset,
			block(hour), during, block(400*day), wait(400*day-hour), during, allow(1, burst(l)-1))
	})},
	{"a bucket refills under a block, and is after it what it would be without", on(minute, 10, allow(8, 2), block(5*minute),
		deny(8, 0), says(store.State{Blocked: true, RetryAfter: 6 * minute, ResetAfter: 8 * minute}), wait(3*minute),
		deny(1, 0), says(store.State{Blocked: true, RetryAfter: 2 * minute, ResetAfter: 5 * minute}), wait(2*minute),
		allow(7, 0), deny(1, 0))},
	{"what is owed, settled or refunded is charged under a block, which goes on", on(minute, 5, allow(2, 3), block(4*minute), settle(1, 0),
		owe(4, 0), says(store.State{Allowed: true, Blocked: true, RetryAfter: 4 * minute, ResetAfter: 7 * minute, Wait: 2 * minute}),
		allow(-1, 0), allow(-6, 0), allow(-math.MaxInt64, 0), deny(1, 0), settle(6, 0), blocked(4*minute, false),
		wait(4*minute), allow(4, 0), deny(1, 0))},
	{"a block takes the place of an earlier block or lock, also of a longer one", on(second, 5, locking(24*hour), allow(5, 0), locking(0),
		block(hour), blocked(hour, false), allow(-5, 0), block(2*hour), blocked(2*hour, false), wait(minute),
		block(second), blocked(second, false), wait(second-micro), deny(1, 0), wait(micro), allow(1, 4))},
	{"an unblocked bucket is what it would be without the block", on(minute, 10,
		allow(8, 2), block(hour), wait(minute), deny(1, 0), block(0), block(0), allow(3, 0), deny(1, 0),
		by("full"), block(hour), block(0), blocked(0, false), allow(10, 0),
		by("unknown"), block(0), allow(10, 0),
		by("locked"), locking(hour), allow(10, 0), block(0), blocked(0, false))},
	{"a reset ends a block or lock", on(hour, 10,
		locking(hour), times(2, allow(10, 0), reset, blocked(0, false), block(hour), reset, blocked(0, false)))},
	{"a changed limit does not end a block, and a denied charge changes it", on(minute, 10, allow(8, 2), block(hour),
		limit(1, hour, 20), deny(1, 0), owe(2, 0), blocked(hour, false), wait(hour-micro), deny(1, 0), wait(micro), allow(1, 0), deny(1, 0))},
	{"a bucket that is full when it is blocked is full after that, under any limit", on(hour, 600, block(hour),
		limit(1, hour, 6), deny(1, 0), wait(hour), limit(1, hour, 600), allow(600, 0))},
	{"a charge with MaxWait does not wait for the end of a block", on(second, 5, maxWait(hour), block(10*second), deny(1, 0),
		wait(10*second), allow(5, 0), allow(2, 0), block(second), maxWait(second),
		deny(1, 0), says(store.State{Blocked: true, RetryAfter: 2 * second, ResetAfter: 7 * second}))},
	{"a cost above the burst is never allowed, also by a blocked bucket", on(second, 5, block(minute),
		deny(6, 0), says(store.State{Blocked: true, RetryAfter: store.Never, ResetAfter: minute}))},
	{"a blocked bucket denies the whole call, except a shadow", on(hour, 5, block(hour), func(b *bucket) {
		free := store.Charge{Policy: "free", Key: b.Key, Limit: b.Limit, Cost: 1}
		for _, shadow := range []bool{false, true} {
			c := store.Charge{Policy: b.Policy, Key: b.Key, Limit: b.Limit, Cost: 1, Shadow: shadow}
			if ok, states := b.take(c, free); ok != shadow {
				b.Fatalf("ok %t, %+v", ok, states)
			}
		}
	}, wait(hour), peek(5))},
	{"a blocked bucket is not forgotten", each(second/100, 10, map[string]step{
		"unknown":   all(),
		"used":      allow(1, 9),
		"in debt":   owe(30, 0),
		"blocked":   block(second),
		"relimited": all(limit(1, second, 100), allow(95, 5), limit(100, second, 10), allow(1, 4)),
	}, func(use step) step {
		return all(use, block(10*minute), times(4, wait(2*minute), deny(1, 0)), allow(-1, 0), wait(2*minute-micro), deny(1, 0), wait(micro), allow(1, 9))
	})},
	{"time that runs backwards neither ends a block nor shortens it", on(second, 5, block(10*second), shift(-5*second),
		blocked(15*second, false), shift(15*second-micro), deny(1, 0), shift(micro), allow(1, 4))},
	{"a block or lock is rounded up to a microsecond, and lasts at most 35 years", on(second, 5,
		block(1), blocked(micro, false), block(1001), blocked(2*micro, false), block(longest-1), blocked(longest, false), reset,
		locking(1), allow(5, 0), blocked(micro, true), reset, locking(1001), allow(5, 0), blocked(2*micro, true), reset,
		locking(math.MaxInt64), allow(5, 0), blocked(longest, true))},
	{"a block has a reason, and a time since when", on(hour, 9, func(b *bucket) {
		for _, reason := range []string{"scraping, says Ann", "", strings.Repeat("é", store.MaxReason/2), "a 1\t\"b\"\n\x00"} {
			b.rig.block(b.name(), store.Block{For: hour, Reason: reason}) // which is compared after each charge
			all(wait(minute), deny(1, 0), owe(1, 0), limit(1, hour, 6), deny(1, 0))(b)
		}
	})},
	{"an invalid block is an error that wraps ErrInvalidCall, and changes nothing", on(hour, 5, block(minute), func(b *bucket) {
		for _, invalid := range []store.Block{{For: -1}, {For: longest + 1}, {For: hour, Reason: strings.Repeat("x", store.MaxReason+1)}} {
			if _, err := store.SetBlock(context.Background(), b.store, b.Policy, b.Key, invalid); !errors.Is(err, store.ErrInvalidCall) {
				b.Errorf("%+v: %v, want ErrInvalidCall", invalid, err)
			}
		}
	}, blocked(minute, false))},
	{"a known denial does not outlast a block, nor keep one from being made", on(second, 1, times(3, allow(1, 0),
		deny(1, 0), block(hour), deny(1, 0), deny(1, 0), block(minute), deny(1, 0), says(store.State{Blocked: true, RetryAfter: minute, ResetAfter: minute}),
		block(0), deny(1, 0), says(store.State{RetryAfter: second, ResetAfter: second}), block(hour), deny(1, 0), reset))},
}

// lockRules are those of a charge with Lock.
var lockRules = []rule{
	{"the charge that leaves less than one token locks the bucket, and is allowed", on(minute, 5, locking(15*minute),
		allow(4, 1), blocked(0, false), allow(1, 0), says(store.State{Allowed: true, Blocked: true, RetryAfter: 15 * minute, ResetAfter: 15 * minute}),
		wait(15*minute-micro), deny(1, 0), blocked(micro, true), wait(micro), blocked(0, false),
		allow(4, 1), wait(59*second), allow(1, 0), blocked(15*minute, true))},
	{"a locked bucket denies until it has a token, if that takes longer", on(15*minute, 5, locking(10*minute), allow(5, 0),
		deny(1, 0), says(store.State{Blocked: true, RetryAfter: 15 * minute, ResetAfter: 75 * minute}),
		waitRetry(micro), deny(1, 0), blocked(0, false), wait(micro), allow(1, 0), blocked(10*minute, true))},
	{"only a charge that is carried out locks, and a denied one makes no lock longer", on(minute, 1, allow(1, 0), locking(hour),
		deny(1, 0), deny(2, 0), shadow(true), deny(1, 0), blocked(0, false), wait(minute),
		allow(1, 0), shadow(false), times(59, wait(minute), deny(1, 0)), blocked(minute, true))},
	{"a refund that leaves one token or more ends a lock, and another does not", on(hour, 5, locking(24*hour),
		allow(5, 0), plain(-1, 1), blocked(0, false), allow(1, 0), owe(2, 0), plain(-1, 0), plain(-1, 0), blocked(24*hour, true),
		wait(hour/2), plain(-1, 1), blocked(0, false), allow(1, 0), wait(5*hour), deny(1, 0), plain(-1, 5), allow(1, 4))},
	{"a denied call does not end a lock", on(minute, 1, locking(hour), allow(1, 0), withheld(store.Charge{Cost: -1}), blocked(hour, true))},
	{"what is owed locks, and changes no lock and no block in force", on(minute, 5, locking(hour),
		owe(4, 1), blocked(0, false), owe(3, 0), wait(minute), owe(1, 0), locking(24*hour), owe(1, 0), blocked(59*minute, true),
		blocking(block(minute), owe(1, 0), blocked(minute, false)))},
	{"no other charge ends a lock, or lets it be forgotten", each(second/100, 10, map[string]step{
		"none":         all(),
		"denied":       deny(1, 0),
		"a look":       peek(0),
		"owed":         owe(2, 0),
		"settled":      settle(2, 0),
		"a shadow":     all(shadow(true), deny(1, 0), shadow(false)),
		"that waits":   all(maxWait(hour), deny(1, 0), maxWait(0)),
		"quicker":      all(limit(1000, second, 10), deny(1, 0)),
		"slower":       all(limit(1, hour, 10), deny(1, 0), limit(100, second, 10), deny(1, 0)),
		"owed quicker": all(limit(1000, second, 10), owe(1, 0)),
	}, func(use step) step {
		return all(locking(10*minute), allow(10, 0), locking(0), use, times(5, wait(2*minute-micro), use, deny(1, 0)),
			wait(4*micro), blocked(micro, true), wait(micro), blocked(0, false))
	})},
}
