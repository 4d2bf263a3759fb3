package decorators_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

// A long key names one bucket, whatever decorators a program has around its Store. So a command without them blocks it for
// all.
func TestLongKeysNameOneBucketInAllStacks(t *testing.T) {
	for name, stack := range stacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := teststore.OpenMemory(t, nil)
				s := stack(t, memory, lease.Config{}, fallback.Config{}, denialcache.Config{})
				c := store.Charge{Policy: "p", Key: strings.Repeat("k", 257), Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: 1}
				if _, err := store.SetBlock(t.Context(), memory, c.Policy, c.Key, store.Block{For: time.Minute}); err != nil {
					t.Fatal(err)
				}
				if ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); ok || err != nil {
					t.Errorf("%t, %v, want a denial", ok, err)
				}
			})
		})
	}
}
