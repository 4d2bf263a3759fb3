package redistest

import (
	"testing"
	"time"
)

const (
	// waitTimeout bounds every wait for a server.
	waitTimeout  = 10 * time.Second
	pollInterval = 10 * time.Millisecond
)

// waitUntil polls condition until it holds and fails the test with what was
// waited for if it does not within waitTimeout.
func waitUntil(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(waitTimeout); !condition(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", waitTimeout, what)
		}
	}
}
