//go:build soak

package outages_test

import (
	"os"
	"testing"
	"time"
)

// TestSoak goes through all kinds of trouble, which last ten times as long, for as long as RATELIMIT_SOAK says, a
// duration; default once.
func TestSoak(t *testing.T) {
	var length time.Duration
	if text := os.Getenv("RATELIMIT_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("RATELIMIT_SOAK: %v", err)
		}
	}
	begin := time.Now()
	for first := true; first || time.Since(begin) < length; first = false {
		for _, f := range faults {
			if f.lasts == 0 {
				f.lasts = 10 * ill
			}
			t.Run(f.name, func(t *testing.T) { f.run(t, 2) })
		}
	}
}
