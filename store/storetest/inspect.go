package storetest

import (
	"context"
	"errors"

	"github.com/go-tokenbucket/ratelimit/store"
)

// inspectRules are those of an Inspector. What it reports is compared in the other rules, too.
var inspectRules = []rule{
	{"nothing is kept of a bucket that was never charged, or was reset", on(second, 5,
		unkept, peek(5), deny(6, 5), unkept, allow(3, 2), reset, unkept, deny(6, 5), unkept)},
	{"a bucket is used until it has refilled", onSlow(func(l store.Limit) step {
		used := func(want bool) step {
			return func(b *bucket) {
				if kept := b.inspect(b.name()); kept.Used() != want || want && kept.Limit != l {
					b.Fatalf("%+v, want it used: %t, under %+v", kept, want, l)
				}
			}
		}
		return all(used(false), allow(1, burst(l)-1), used(true), func(b *bucket) { b.rig.wait(b.last.ResetAfter - micro) }, used(true), wait(micro), used(false))
	})},
	{"to inspect a bucket changes nothing", on(second, 10, allow(4, 6), inspect, wait(second/2), inspect, wait(second/2),
		allow(7, 0), inspect, deny(1, 0), inspect, wait(second), allow(1, 0), limit(1, hour, 3), inspect, limit(1, second, 10), peek(0))},
	{"to inspect a bucket without a name is malformed", func(r *rig) {
		for _, n := range []name{{"", "k"}, {"p", ""}} {
			if b, err := store.Inspect(context.Background(), r.store, n.policy, n.key); b != (store.Bucket{}) || !errors.Is(err, store.ErrInvalidCall) {
				r.Errorf("%+v: %+v, %v, want ErrInvalidCall", n, b, err)
			}
		}
	}},
}

func inspect(b *bucket) {
	kept := b.inspect(b.name())
	for range 3 {
		if again := b.inspect(b.name()); again != kept {
			b.Fatalf("%+v, want %+v", again, kept)
		}
	}
}

func unkept(b *bucket) {
	if kept := b.inspect(b.name()); kept != (store.Bucket{}) {
		b.Fatalf("%+v, want that nothing is kept", kept)
	}
}
