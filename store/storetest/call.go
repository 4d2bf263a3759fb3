package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// callRules are those of the arguments and errors of a call.
var callRules = []rule{
	{"no two pairs of policy and key share a bucket, whatever bytes they hold", func(r *rig) {
		limit := r.limit(1, hour, 1)
		long := strings.Repeat("x", 300)
		hash := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
		pairs := [][2]string{
			{"a", "b"}, {"b", "a"}, {"a", "b:c"}, {"a:b", "c"}, {"b:c", "a"}, {"c", "a:b"},
			{"a", "{b}"}, {"a", "b}"}, {"a", "{b"}, {"a}", "b"}, {"a", "}:a{b"}, {"a", "b}:a"},
			{"a", " b"}, {"a", "b "}, {"a", "B"}, {"a", "b\x00"}, {"a", "\x00b"}, {"a\x00", "b"}, {"a", "b\n"},
			{"a", "bé"}, {"a", "be\u0301"}, {"a", "\xff"}, {"a", "\xfe"},
			{"a", long}, {"a", long + "x"}, {long, "a"}, {long + "x", "a"},
			{"a", hash(long)}, {"a", hash("b ")}, {hash(long), "a"}, // not mistaken for the hash of another
		}
		for range 2 {
			for _, p := range pairs {
				r.take(store.Charge{Policy: p[0], Key: p[1], Limit: limit, Cost: 1})
			}
		}
	}},
	{"charges and states are the caller's after the call, and every state is written anew", func(r *rig) {
		c := store.Charge{Policy: "p", Key: "k", Limit: r.limit(1, hour, 5), Cost: 1}
		for used := range int64(3) {
			charges, states := []store.Charge{c}, []store.State{{RetryAfter: 1, Wait: 3, Degraded: true, Blocked: true, Remaining: 9}}
			ok, err := r.store.Take(context.Background(), charges, states)
			if want := (store.State{Allowed: true, Remaining: 4 - used, ResetAfter: time.Duration(used+1) * hour}); !ok || err != nil || states[0] != want {
				r.Fatalf("%t, %v, %+v, want %+v", ok, err, states[0], want)
			}
			charges[0].Key, states[0] = "another", store.State{}
		}
	}},
	{"a call whose context has ended changes nothing, and says so", on(hour, 1, func(b *bucket) {
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
		defer cancel()
		for _, ctx := range []context.Context{canceled, expired} {
			_, err := b.store.Take(ctx, []store.Charge{{Policy: "p", Key: "k", Limit: b.Limit, Cost: 1}}, make([]store.State, 1))
			errs := map[string]error{"Take": err}
			if is[store.Inspector](b.rig) {
				_, errs["Inspect"] = store.Inspect(ctx, b.store, "p", "k")
			}
			if is[store.Blocker](b.rig) {
				_, errs["Block"] = store.SetBlock(ctx, b.store, "p", "k", store.Block{For: hour})
			}
			for call, err := range errs {
				if !errors.Is(err, ctx.Err()) {
					b.Errorf("%s: error %v, want %v", call, err, ctx.Err())
				}
			}
		}
	}, peek(1))},
	{"an invalid call is an error that wraps ErrInvalidCall, and charges nothing", on(hour, 1, func(b *bucket) {
		good := store.Charge{Policy: "p", Key: "k", Limit: b.Limit, Cost: 1}
		settles, other := good, good
		settles.Settles, other.Key = true, "another"
		for name, charges := range map[string][]store.Charge{
			"no charges":              {},
			"too few states":          {good, other, {Policy: "q", Key: "k", Limit: b.Limit}},
			"one bucket twice":        {good, good},
			"no limit":                {{Policy: "p", Key: "k"}},
			"a settlement of several": {settles, other},
		} {
			if ok, err := b.store.Take(context.Background(), charges, make([]store.State, 2)); ok || !errors.Is(err, store.ErrInvalidCall) {
				b.Errorf("%s: ok %t, error %v, want false and ErrInvalidCall", name, ok, err)
			}
		}
	}, peek(1))},
}

// setRules are those of a call of several charges.
var setRules = []rule{
	{"a call of several charges takes all, or none if one is denied", called(false, [3]int64{99, 0, 8}, func([]store.Charge) {})},
	{"a denied call withholds its refunds", called(false, [3]int64{99, 0, 8}, func(c []store.Charge) { c[0].Cost = -1 })},
	{"a denied call withholds its resets", called(false, [3]int64{99, 0, 8}, func(c []store.Charge) { c[0].Cost = store.Reset })},
	{"a denied call withholds what is owed", called(false, [3]int64{99, 0, 8}, func(c []store.Charge) { c[0].Cost, c[0].Owed = 200, true })},
	{"a denied call withholds its shadows", called(false, [3]int64{99, 0, 8}, func(c []store.Charge) { c[0].Shadow = true })},
	{"a denied call withholds its locks", called(false, [3]int64{99, 0, 8}, func(c []store.Charge) { c[2].Cost, c[2].Lock = 8, hour })},
	{"a shadow that cannot pay denies nothing, and is not charged", called(true, [3]int64{98, 0, 6}, func(c []store.Charge) { c[1].Shadow = true })},
	{"a shadow that can pay is charged", called(true, [3]int64{98, 0, 6}, func(c []store.Charge) { c[0].Shadow, c[1].Cost = true, 0 })},
	{"a look denies nothing", called(true, [3]int64{98, 0, 6}, func(c []store.Charge) { c[1].Cost = 0 })},
	{"a refund denies nothing", called(true, [3]int64{98, 1, 6}, func(c []store.Charge) { c[1].Cost = -1 })},
	{"a reset denies nothing", called(true, [3]int64{98, 1, 6}, func(c []store.Charge) { c[1].Cost = store.Reset })},
	{"what is owed denies nothing", called(true, [3]int64{98, 0, 0}, func(c []store.Charge) { c[1].Owed, c[2].Owed, c[2].Cost = true, true, 20 })},
	{"a charge locks its own bucket", called(true, [3]int64{98, 0, 0}, func(c []store.Charge) { c[1].Cost, c[2].Cost, c[2].Lock = 0, 8, hour })},
	{"a call of shadows only is always allowed", on(minute, 1, shadow(true), allow(1, 0), deny(1, 0))},
	{"a call may have many charges", func(r *rig) {
		var charges []store.Charge
		for i := range 40 {
			charges = append(charges, store.Charge{Policy: "p" + string(rune('A'+i)), Key: "k", Limit: r.limit(1, second, 2), Cost: 1})
		}
		for range 3 {
			r.take(charges...)
		}
	}},
}

// called returns a test of a call of several charges, with much, little and medium room. It makes the call once, and again
// after a change. left is what the buckets hold then. With one key, a store on Redis Cluster can take them together.
func called(ok bool, left [3]int64, change func(c []store.Charge)) func(*rig) {
	return func(r *rig) {
		charges := []store.Charge{
			{Policy: "plenty", Key: "k", Limit: r.limit(1, second, 100), Cost: 1},
			{Policy: "scarce", Key: "k", Limit: r.limit(1, minute, 1), Cost: 1},
			{Policy: "middle", Key: "k", Limit: r.limit(1, second, 10), Cost: 2},
		}
		r.take(charges...)
		change(charges)
		if got, states := r.take(charges...); got != ok {
			r.Fatalf("ok %t, %+v", got, states)
		}
		for i, c := range charges {
			peek(left[i])(&bucket{rig: r, Charge: c})
		}
	}
}

// inspectRules are those of an Inspector. The other rules compare its reports, too.
var inspectRules = []rule{
	{"nothing is kept of a bucket that was never charged, or was reset", on(second, 5,
		unkept, peek(5), deny(6, 5), unkept, allow(3, 2), reset, unkept, deny(6, 5), unkept)},
	{"a bucket is used until it has refilled", onSlow(func(l store.Limit) step {
		return all(unused, allow(1, burst(l)-1), used, func(b *bucket) { b.rig.wait(b.last.ResetAfter - micro) }, used, wait(micro), unused)
	})},
	{"to inspect a bucket without a name is an error that wraps ErrInvalidCall", func(r *rig) {
		if b, err := store.Inspect(context.Background(), r.store, "p", ""); b != (store.Bucket{}) || !errors.Is(err, store.ErrInvalidCall) {
			r.Errorf("%+v, %v, want ErrInvalidCall", b, err)
		}
	}},
	{"to inspect a bucket changes nothing", on(second, 10, allow(4, 6), used, used, wait(second/2), used, wait(second/2),
		allow(7, 0), used, deny(1, 0), used, wait(second), allow(1, 0), limit(1, hour, 3), used, limit(1, second, 10), peek(0))},
}

var (
	unkept = keeps(func(kept store.Bucket) bool { return kept == store.Bucket{} })
	unused = keeps(func(kept store.Bucket) bool { return !kept.Used() })
	used   = keeps(store.Bucket.Used)
)

func keeps(want func(kept store.Bucket) bool) step {
	return func(b *bucket) {
		if kept := b.inspect(b.name()); !want(kept) {
			b.Fatalf("%+v is kept", kept)
		}
	}
}
