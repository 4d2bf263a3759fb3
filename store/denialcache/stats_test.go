package denialcache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

func TestStatsCountDenialsThatTheStoreDidNotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := &teststore.Counted{Store: teststore.OpenMemory(t, nil)}
		d := ratelimit.Must(denialcache.New(behind, denialcache.Config{MaxKeys: 1 << 10, MaxAge: time.Second}))
		want := func(want store.DenialStats) {
			t.Helper()
			if got := d.Stats().Denials; got == nil || *got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		want(store.DenialStats{Max: 1 << 10})

		var calls sync.WaitGroup
		const keys, each = 3, 50
		for i := range keys {
			one := store.Charge{Policy: "p", Key: fmt.Sprint(i), Limit: teststore.Limit(t, 1, time.Hour, 5), Cost: 1}
			teststore.TakeAllowed(t, d, one)
			one.Cost = 5
			for range each {
				calls.Go(func() {
					if ok, err := d.Take(t.Context(), []store.Charge{one}, make([]store.State, 1)); ok || err != nil {
						t.Error(ok, err)
					}
					d.Stats()
				})
			}
		}
		calls.Wait()
		want(store.DenialStats{Answered: keys*(each+1) - behind.Calls.Load(), Kept: keys, Max: 1 << 10})
		if behind.Calls.Load() == keys*(each+1) {
			t.Error("nothing was answered here")
		}

		answered := d.Stats().Denials.Answered
		teststore.TakeAllowed(t, d, store.Charge{Policy: "p", Key: "0", Limit: teststore.Limit(t, 1, time.Hour, 5), Cost: -5})
		want(store.DenialStats{Answered: answered, Kept: keys - 1, Max: 1 << 10})
		time.Sleep(time.Second + time.Microsecond)
		want(store.DenialStats{Answered: answered, Max: 1 << 10})
	})
}

func TestStatsOfADenialcacheOverAnother(t *testing.T) {
	inner := ratelimit.Must(denialcache.New(teststore.OpenMemory(t, nil), denialcache.Config{MaxKeys: 2}))
	outer := ratelimit.Must(denialcache.New(inner, denialcache.Config{MaxKeys: 4}))
	over := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Hour, 5), Cost: 6}
	for _, s := range []store.Store{inner, inner, outer} {
		if ok, err := s.Take(context.Background(), []store.Charge{over}, make([]store.State, 1)); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	// The outer one learns from a denial of the inner one.
	if got, want := *outer.Stats().Denials, (store.DenialStats{Answered: 2, Kept: 2, Max: 6}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
