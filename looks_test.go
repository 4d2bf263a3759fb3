package ratelimit

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Clients choose keys, also long ones.
func TestLooksAreBounded(t *testing.T) {
	var ls looks
	limit, err := store.NewLimit(10, 1_000_000_000, 10)
	if err != nil {
		t.Fatal(err)
	}
	look := func(key string) {
		_, err := ls.read(t.Context(), []store.Charge{{Policy: "api", Key: key, Limit: limit}}, func(context.Context, []store.Charge, []store.State) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	header := strings.Repeat("h", 1<<16)
	for i := range 20 * maxLooks {
		look(fmt.Sprintf("%08d", i) + header[:i%300]) // of up to 256 bytes, and longer
		if i%97 == 0 {
			long := fmt.Sprint(i) + header
			look(long[:40]) // which is a part of a long header
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(ls.kept) != maxLooks {
		t.Errorf("%d looks", len(ls.kept))
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > maxLooks<<10 {
		t.Errorf("%d bytes", grown)
	}
	runtime.KeepAlive(&ls)
}

// A look is for one bucket and one limit. No other may be taken for it.
func TestLooksOfDifferentBuckets(t *testing.T) {
	var ls looks
	second, _ := store.NewLimit(10, 1_000_000_000, 10)
	minute, _ := store.NewLimit(10, 60_000_000_000, 10)
	long := strings.Repeat("k", 300)
	var charges []store.Charge
	for _, policy := range []string{"a", "b"} {
		for _, key := range []string{"k", "kk", long, long + "k"} {
			for _, limit := range []store.Limit{second, minute} {
				charges = append(charges, store.Charge{Policy: policy, Key: key, Limit: limit})
			}
		}
	}
	next := int64(0)
	ask := func(_ context.Context, asked []store.Charge, states []store.State) error {
		for i := range asked {
			next++
			states[i].Remaining = next
		}
		return nil
	}
	for range 2 {
		for i := range charges {
			if looks, err := ls.read(t.Context(), charges[i:i+1], ask); err != nil || looks[0].state.Remaining != int64(i)+1 {
				t.Errorf("%+v: %+v, %v; want %d", charges[i], looks[0].state, err, i+1)
			}
		}
	}
}
