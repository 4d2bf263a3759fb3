//go:build long

package memstore_test

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestSoak(t *testing.T) {
	storetest.RunSoak(t, func(t *testing.T, clock func() time.Time) store.Store {
		s := memstore.New(memstore.Config{Clock: clock})
		s.Close() // or its sweep would forget full buckets, which a clock that goes backwards tells
		return s
	})
}
