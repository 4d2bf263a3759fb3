//go:build long

package storetest

import (
	"cmp"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// RunSoak runs random sequences with new seeds, for the duration in the environment variable RATELIMIT_SOAK.
// Default 15 seconds.
func RunSoak(t *testing.T, open Open) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("RATELIMIT_SOAK"), "15s"))
	if err != nil {
		t.Fatalf("RATELIMIT_SOAK: %v", err)
	}
	for begin := time.Now(); time.Since(begin) < length; {
		RunSequence(t, open, 10_000, rand.Uint64())
	}
}
