package teststore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

// MostOfLongKeys is how many bytes LongKeys may leave on the heap if keys are kept by their hash. It includes the
// first allocations of the tables.
const MostOfLongKeys = 2_000_000

// LongKeys calls f with charges of different keys of 90 KB, 27 MB in all.
func LongKeys(t testing.TB, f func(c store.Charge)) {
	t.Helper()
	long := strings.Repeat("k", 90_000)
	for i := range 300 {
		f(store.Charge{Policy: "p", Key: long + fmt.Sprint(i), Limit: Limit(t, 1, time.Hour, 100), Cost: 1})
	}
}

// LeftOnHeap returns how many bytes f leaves on the heap. f must keep its results reachable.
func LeftOnHeap(f func()) int64 {
	before := ratetest.Heap()
	f()
	return ratetest.Heap() - before
}
