package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func open(t *testing.T, clock func() time.Time) store.Store {
	s := memstore.New(memstore.Config{Clock: clock})
	t.Cleanup(func() { s.Close() })
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, open)
}

func TestSequence(t *testing.T) {
	// In a bubble, where the timer of the sweep does not run out: it may forget a bucket that is full,
	// which a clock that goes backwards afterwards would tell.
	synctest.Test(t, func(t *testing.T) {
		storetest.RunSequence(t, open, 200_000, 2)
	})
}
