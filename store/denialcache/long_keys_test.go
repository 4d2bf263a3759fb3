package denialcache_test

import (
	"runtime"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

func TestDenialsKeepLongKeysByTheirHash(t *testing.T) {
	s := denialcache.New(instant{}, denialcache.Config{MaxKeys: 1 << 10})
	kept := teststore.HeapOf(func() {
		teststore.LongKeys(t, func(c store.Charge) {
			c.Cost = 6 // which is refused
			if ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); ok || err != nil {
				t.Fatal(ok, err)
			}
		})
	})
	if kept > teststore.MostOfLongKeys {
		t.Errorf("300 keys of 90 KB keep %d bytes", kept)
	}
	runtime.KeepAlive(s)
}
