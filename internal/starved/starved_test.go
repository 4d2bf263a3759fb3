package starved_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
)

// In a bubble time stands still while goroutines run.
func TestAWaitIsJudgedByTheTimeThatACallIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			wait         time.Duration
			busy, severe bool
		}{
			{0, false, false},
			{4 * time.Millisecond, false, false},
			{5 * time.Millisecond, true, false},
			{24 * time.Millisecond, true, false},
			{25 * time.Millisecond, true, true},
		} {
			const given = 100 * time.Millisecond
			wait := starved.Since(time.Now().Add(-tt.wait))
			if busy, severe := wait.Busy(given), wait.Severe(given); busy != tt.busy || severe != tt.severe {
				t.Errorf("%v: busy %t, severe %t, want %t and %t", tt.wait, busy, severe, tt.busy, tt.severe)
			}
		}
		// A severe one is remembered for a while: load comes in waves.
		time.Sleep(999 * time.Millisecond)
		if wait := starved.Since(time.Now()); !wait.Busy(time.Hour) || wait.Severe(time.Hour) {
			t.Error("a severe wait was forgotten at once, or makes others severe")
		}
		time.Sleep(time.Millisecond)
		if starved.Since(time.Now()).Busy(time.Hour) {
			t.Error("a severe wait is remembered for more than a second")
		}
	})
}

func TestSinceLetsOthersRunFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const work = 20 * time.Millisecond
	for tries := 1; ; tries++ {
		begin := time.Now()
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() {
				for end := time.Now().Add(work); time.Now().Before(end); {
				}
			})
		}
		due := time.Now()
		wait := time.Duration(starved.Since(due))
		running.Wait()
		if wait >= 5*time.Millisecond { // then it is Busy; the others do not run to their end without a break
			return
		}
		if due.Sub(begin) < time.Millisecond || tries == 100 { // otherwise the others may have run before
			t.Fatalf("%v, although others take %v each", wait, work)
		}
	}
}
