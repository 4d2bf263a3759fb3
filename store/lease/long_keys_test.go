package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
)

func TestLeasesKeepLongKeysByTheirHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lease.New(teststore.OpenMemory(t, nil), lease.Config{Hold: time.Hour, MaxKeys: 1 << 10})
		defer s.Close()
		kept := teststore.HeapOf(func() {
			teststore.LongKeys(t, func(c store.Charge) {
				for range 3 {
					if ok, err := s.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
			})
		})
		if kept > teststore.MostOfLongKeys {
			t.Errorf("300 keys of 90 KB keep %d bytes", kept)
		}
	})
}
