package store_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// heapOf returns how many bytes remain on the heap after f, which must keep alive what it is about.
func heapOf(f func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// longKeys calls f with charges of different keys of 90 KB, 27 MB in all.
func longKeys(t *testing.T, f func(c store.Charge)) {
	long := strings.Repeat("k", 90_000)
	for i := range 300 {
		f(store.Charge{Policy: "p", Key: long + fmt.Sprint(i), Limit: limit(t, 1, time.Hour, 100), Cost: 1})
	}
}

// mostOfLongKeys is with what the tables take for the first bucket of each part.
const mostOfLongKeys = 2_000_000

func TestAFallbackKeepsLongKeysByTheirHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, store.FallbackConfig{})
		d.fail(broken)
		if kept := heapOf(func() { longKeys(t, func(c store.Charge) { d.take(c) }) }); kept > mostOfLongKeys {
			t.Errorf("300 keys of 90 KB keep %d bytes", kept)
		}
		d.comeBack()
		longKeys(t, func(c store.Charge) {
			if strings.HasSuffix(c.Key, "77") {
				if _, state := d.take(c); state.Degraded || state.Remaining != 98 {
					t.Errorf("%+v, want 98 left", state)
				}
			}
		})
	})
}

// An outage is probed with the keys of the call that failed.
func TestProbesHaveShortKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, store.FallbackConfig{Failures: 1})
		asked := 0
		d.primary.Store = longest{d.primary.Store, &asked}
		d.primary.have(broken)
		d.take(store.Charge{Policy: "p", Key: strings.Repeat("k", 1<<20), Limit: limit(t, 1, time.Hour, 1), Cost: 1})
		d.comeBack()
		if asked == 0 || asked > 256 {
			t.Errorf("asked with a key of %d bytes", asked)
		}
	})
}

func TestLeasesKeepLongKeysByTheirHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.Lease(openMemory(t, nil), store.LeaseConfig{Hold: time.Hour, MaxKeys: 1 << 10})
		defer s.Close()
		kept := heapOf(func() {
			longKeys(t, func(c store.Charge) {
				for range 3 {
					if ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
			})
		})
		if kept > mostOfLongKeys {
			t.Errorf("300 keys of 90 KB keep %d bytes", kept)
		}
	})
}

func TestDenialsKeepLongKeysByTheirHash(t *testing.T) {
	s := store.CacheDenials(instant{}, store.DenialConfig{MaxKeys: 1 << 10})
	kept := heapOf(func() {
		longKeys(t, func(c store.Charge) {
			c.Cost = 6 // which is refused
			if ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); ok || err != nil {
				t.Fatal(ok, err)
			}
		})
	})
	if kept > mostOfLongKeys {
		t.Errorf("300 keys of 90 KB keep %d bytes", kept)
	}
	runtime.KeepAlive(s)
}

// longest notes how long a key was that a Store was asked with.
type longest struct {
	store.Store
	asked *int
}

func (s longest) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		*s.asked = max(*s.asked, len(charges[i].Key))
	}
	return s.Store.Take(ctx, charges, states)
}
