package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// callRules are those of the arguments and errors of a call.
var callRules = []rule{
	{"no two pairs of policy and key share a bucket, whatever bytes they hold", func(r *rig) {
		limit := r.limit(1, hour, 1)
		long := strings.Repeat("x", 300)
		pairs := [][2]string{
			{"a", "b"}, {"b", "a"}, {"a", "b:c"}, {"a:b", "c"}, {"b:c", "a"}, {"c", "a:b"},
			{"a", "{b}"}, {"a", "b}"}, {"a", "{b"}, {"a}", "b"}, {"a", "}:a{b"}, {"a", "b}:a"},
			{"a", " b"}, {"a", "b "}, {"a", "B"}, {"a", "b\x00"}, {"a", "\x00b"}, {"a\x00", "b"}, {"a", "b\n"},
			{"a", "bé"}, {"a", "be\u0301"}, {"a", "\xff"}, {"a", "\xfe"},
			{"a", long}, {"a", long + "x"}, {long, "a"}, {long + "x", "a"},
			// A name is not mistaken for the hash of another.
			{"a", sha256Hex(long)}, {"a", sha256Hex("b ")}, {sha256Hex(long), "a"},
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
	{"a malformed call is an error that wraps ErrInvalidCall, and charges nothing", on(hour, 1, func(b *bucket) {
		b.Cost = 1
		with := func(change func(c *store.Charge)) []store.Charge {
			c := b.Charge
			change(&c)
			return []store.Charge{c}
		}
		settles := func(change func(c *store.Charge)) []store.Charge {
			return with(func(c *store.Charge) { c.Settles = true; change(c) })
		}
		for name, charges := range map[string][]store.Charge{
			"no charges":              {},
			"no policy":               with(func(c *store.Charge) { c.Policy = "" }),
			"no key":                  with(func(c *store.Charge) { c.Key = "" }),
			"no limit":                with(func(c *store.Charge) { c.Limit = store.Limit{} }),
			"a limit above all":       with(func(c *store.Charge) { c.Limit.Capacity = 1 << 60 }),
			"a burst below a token":   with(func(c *store.Charge) { c.Limit.Capacity = c.Limit.Unit - 1 }),
			"fuller than full":        with(func(c *store.Charge) { c.Limit.Refill = c.Limit.Capacity + 1 }),
			"one bucket twice":        {b.Charge, b.Charge},
			"a lock below 0":          with(func(c *store.Charge) { c.Lock = -1 }),
			"a refund that locks":     with(func(c *store.Charge) { c.Cost, c.Lock = -1, hour }),
			"a look that locks":       with(func(c *store.Charge) { c.Cost, c.Lock = 0, hour }),
			"a lock that waits":       with(func(c *store.Charge) { c.MaxWait, c.Lock = hour, hour }),
			"a settlement of nothing": settles(func(c *store.Charge) { c.Cost = 0 }),
			"a settled refund":        settles(func(c *store.Charge) { c.Cost = -1 }),
			"a settlement that waits": settles(func(c *store.Charge) { c.MaxWait = 1 }),
			"a settled shadow":        settles(func(c *store.Charge) { c.Shadow = true }),
			"a settlement owed":       settles(func(c *store.Charge) { c.Owed = true }),
			"a settlement that locks": settles(func(c *store.Charge) { c.Lock = 1 }),
			"a settlement of several": append(settles(func(*store.Charge) {}), store.Charge{Policy: "q", Key: "k", Limit: b.Limit}),
		} {
			ok, err := b.store.Take(context.Background(), charges, make([]store.State, max(1, len(charges))))
			if ok || !errors.Is(err, store.ErrInvalidCall) {
				b.Errorf("%s: ok %t, error %v, want false and ErrInvalidCall", name, ok, err)
			}
		}
		if ok, err := b.store.Take(context.Background(), []store.Charge{b.Charge}, nil); ok || !errors.Is(err, store.ErrInvalidCall) {
			b.Errorf("too few states: ok %t, error %v, want false and ErrInvalidCall", ok, err)
		}
	}, peek(1))},
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// set returns charges of one key with much, little and medium room. With one key, a store on Redis Cluster can take
// them together.
func set(r *rig) []store.Charge {
	return []store.Charge{
		{Policy: "plenty", Key: "k", Limit: r.limit(1, second, 100), Cost: 1},
		{Policy: "scarce", Key: "k", Limit: r.limit(1, minute, 1), Cost: 1},
		{Policy: "middle", Key: "k", Limit: r.limit(1, second, 10), Cost: 2},
	}
}

func (r *rig) wantRemaining(charges []store.Charge, want ...int64) {
	r.Helper()
	for i, c := range charges {
		peek(want[i])(&bucket{rig: r, Charge: c})
	}
}

// setRules are those of a call of several charges. In each the second bucket of set is empty before the call.
var setRules = append(sets([]setCase{
	{"a call of several charges takes none if one is denied", func([]store.Charge) {}, false, [3]int64{99, 0, 8}},
	{"a denied call withholds its refunds", func(c []store.Charge) { c[0].Cost = -1 }, false, [3]int64{99, 0, 8}},
	{"a denied call withholds its resets", func(c []store.Charge) { c[0].Cost = store.Reset }, false, [3]int64{99, 0, 8}},
	{"a denied call withholds what is owed", func(c []store.Charge) { c[0].Cost, c[0].Owed = 200, true }, false, [3]int64{99, 0, 8}},
	{"a denied call withholds its shadows", func(c []store.Charge) { c[0].Shadow = true }, false, [3]int64{99, 0, 8}},
	{"a denied call withholds its locks", func(c []store.Charge) { c[2].Cost, c[2].Lock = 8, hour }, false, [3]int64{99, 0, 8}},
	{"a shadow that cannot pay denies nothing, and is not charged", func(c []store.Charge) { c[1].Shadow = true }, true, [3]int64{98, 0, 6}},
	{"a shadow that can pay is charged", func(c []store.Charge) { c[1].Shadow, c[1].Cost, c[0].Shadow = true, 0, true }, true, [3]int64{98, 0, 6}},
	{"a look denies nothing", func(c []store.Charge) { c[1].Cost = 0 }, true, [3]int64{98, 0, 6}},
	{"a refund denies nothing", func(c []store.Charge) { c[1].Cost = -1 }, true, [3]int64{98, 1, 6}},
	{"a reset denies nothing", func(c []store.Charge) { c[1].Cost = store.Reset }, true, [3]int64{98, 1, 6}},
	{"what is owed denies nothing", func(c []store.Charge) { c[1].Owed, c[2].Owed, c[2].Cost = true, true, 20 }, true, [3]int64{98, 0, 0}},
	{"a charge in a call with others locks its own bucket", func(c []store.Charge) { c[1].Cost, c[2].Cost, c[2].Lock = 0, 8, hour }, true, [3]int64{98, 0, 0}},
}), rule{"a call of shadows only is always allowed", on(minute, 1, shadow(true), allow(1, 0), deny(1, 0))},
	rule{"a call may have many charges", func(r *rig) {
		var charges []store.Charge
		for i := range 40 {
			charges = append(charges, store.Charge{Policy: "p" + string(rune('A'+i)), Key: "k", Limit: r.limit(1, second, 2), Cost: 1})
		}
		for want := range 3 {
			if ok, _ := r.take(charges...); ok != (want < 2) {
				r.Fatalf("call %d: ok %t", want+1, ok)
			}
		}
	}})

// A setCase is a rule of a call of the charges of set, after a change.
type setCase struct {
	name   string
	change func(c []store.Charge)
	ok     bool
	left   [3]int64
}

func sets(cases []setCase) (rules []rule) {
	for _, c := range cases {
		rules = append(rules, rule{c.name, func(r *rig) {
			charges := set(r)
			r.take(charges...)
			r.wantRemaining(charges, 99, 0, 8)
			c.change(charges)
			if ok, states := r.take(charges...); ok != c.ok {
				r.Fatalf("ok %t, %+v", ok, states)
			}
			r.wantRemaining(charges, c.left[:]...)
		}})
	}
	return rules
}
