//go:build long

package storetest

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// RunSoak runs random sequences with new seeds, for the duration in the environment variable RATELIMIT_SOAK.
// Default one minute.
func RunSoak(t *testing.T, open Open) {
	length := time.Minute
	if text := os.Getenv("RATELIMIT_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("RATELIMIT_SOAK: %v", err)
		}
	}
	sequences := 0
	for begin := time.Now(); time.Since(begin) < length; sequences++ {
		RunSequence(t, open, 10_000, rand.Uint64())
	}
	t.Logf("%d sequences of 10,000 calls", sequences)
}
