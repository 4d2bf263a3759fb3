package ratelimit

import (
	"runtime"
	"testing"
	"time"
)

// Some programs make the middleware anew for each request.
func TestLimitInALoopHoldsNoMemory(t *testing.T) {
	l := Must(New(Config{}))
	defer l.Close()
	kept := l.Limit(Policy{Name: "kept", Key: RemoteIP(), Limit: PerHour(1)})
	for range 1000 {
		l.Limit(Policy{Name: "api", Key: RemoteIP(), Limit: PerHour(1)})
	}
	mounts := func() int {
		l.mounts.mu.Lock()
		defer l.mounts.mu.Unlock()
		return len(l.mounts.inUse()) - 1
	}
	for deadline := time.Now().Add(10 * time.Second); mounts() > 1; { // cleanups run some time after a collection
		if time.Now().After(deadline) {
			t.Fatalf("%d are held", mounts())
		}
		runtime.GC()
		runtime.Gosched()
	}
	if mounts() != 1 {
		t.Error("one that is in use was forgotten")
	}
	runtime.KeepAlive(kept)
}
