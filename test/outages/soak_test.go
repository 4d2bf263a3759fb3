//go:build long

package outages_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// TestSoak goes through the kinds of trouble in random order, each ten times as long as in TestOutages, for as long as
// the environment variable RATELIMIT_SOAK says, a duration; default one minute.
func TestSoak(t *testing.T) {
	length := time.Minute
	if text := os.Getenv("RATELIMIT_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("RATELIMIT_SOAK: %v", err)
		}
	}
	for begin := time.Now(); ; {
		for _, i := range rand.Perm(len(faults)) {
			f := faults[i]
			if f.lasts == 0 {
				f.lasts = 10 * ill
			}
			t.Run(f.name, func(t *testing.T) { f.run(t, 2) })
			if time.Since(begin) >= length {
				return
			}
		}
	}
}
