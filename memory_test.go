package ratelimit

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
	"github.com/go-tokenbucket/ratelimit/store"
)

// With 57 bytes more, and the 8 that the runtime puts before it, an exchange would take 704 bytes instead of 640.
func TestTheSizesOfExchangesAndResults(t *testing.T) {
	if n := unsafe.Sizeof(requestExchange{}) + 8; n > 640 {
		t.Errorf("an exchange of a request has %d bytes", n)
	}
	if n := unsafe.Sizeof(Result{}); n > 120 {
		t.Errorf("a Result has %d bytes", n)
	}
}

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

// A prompt is a Store that allows everything at once, and knows the deadline of each call as one that uses a network does.
type prompt struct{}

func (prompt) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if _, limited := ctx.Deadline(); !limited || ctx.Err() != nil {
		return false, context.DeadlineExceeded
	}
	for i := range charges {
		states[i] = store.State{Allowed: true}
	}
	return true, nil
}

// A Take allocates what becomes of the decision, and a TakeAll its results, too. They allocate nothing for their policies
// or the deadline.
func TestAllocationsOfTakeAndTakeAll(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	user, org := Policy{Name: "user", Limit: PerSecond(1_000_000)}, Policy{Name: "org", Limit: PerMinute(1_000_000)}
	take := func(l *Limiter) (bool, error) {
		r, err := l.Take(ctx, user, "member:5", 1)
		return r.Allowed, err
	}
	takeAll := func(l *Limiter) (bool, error) {
		d, err := l.TakeAll(ctx, Charge{Policy: user, Key: "member:5"}, Charge{Policy: org, Key: "org:7"})
		return d.Allowed, err
	}
	for name, tt := range map[string]struct {
		cfg   Config
		call  func(*Limiter) (bool, error)
		most  float64
		races float64 // the race detector has pools lose some of what is put into them
	}{
		"Take in memory":           {Config{}, take, 1, 2},
		"Take that has a deadline": {Config{Store: prompt{}}, take, 1, 2},
		"TakeAll":                  {Config{Store: prompt{}}, takeAll, 2, 6},
	} {
		tt.cfg.Timeout = 5 * time.Second
		l := Must(New(tt.cfg))
		n := testing.AllocsPerRun(1000, func() {
			if allowed, err := tt.call(l); !allowed || err != nil {
				t.Errorf("%s: allowed %t, error %v", name, allowed, err)
			}
		})
		if len(testbuild.Flags()) > 0 {
			tt.most = tt.races
		}
		if n > tt.most {
			t.Errorf("%s: %v allocations, want %v", name, n, tt.most)
		}
		l.Close()
	}
}

// overridden returns a limiter with 10,000 overrides of keys of its policy, the policy, and requests of many of the keys.
func overridden(tb testing.TB) (*Limiter, *policy, []*http.Request) {
	key := KeyFunc(func(r *http.Request) (string, error) { return r.Pattern, nil })
	l := Must(New(Config{Store: prompt{}, Policies: []Policy{{Name: "api", Key: key, Limit: PerHour(100)}}}))
	overrides, requests := make([]Override, 10_000), make([]*http.Request, 4096)
	for i := range overrides {
		overrides[i] = Override{Policy: "api", Key: fmt.Sprintf("member:%08d", i), Limit: PerHour(int64(i%7) + 1000)}
	}
	for i := range requests {
		requests[i] = &http.Request{Pattern: fmt.Sprintf("member:%08d", i*7919%len(overrides))}
	}
	if err := l.Override(overrides); err != nil {
		tb.Fatal(err)
	}
	return l, l.mounts.handler.policies()[0], requests
}

func TestOverridesOfKeysAllocateNothing(t *testing.T) {
	l, p, requests := overridden(t)
	c, next := new(call), 0
	n := testing.AllocsPerRun(1000, func() {
		c.charges, c.applied, c.states = c.charges[:0], c.applied[:0], c.states[:0]
		if err := c.addFor(l, requests[next], p); err != nil || c.applied[0].limit.Rate < 1000 {
			t.Errorf("%+v, %v", c.applied, err)
		}
		next = (next + 1) % len(requests)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkOverrides measures what a policy adds to a call, without overrides and with 10,000 of keys.
func BenchmarkOverrides(b *testing.B) {
	l, with, requests := overridden(b)
	for name, p := range map[string]*policy{"none": with.program, "10000": with} {
		b.Run(name, func(b *testing.B) {
			c, next := new(call), 0
			for b.Loop() {
				c.charges, c.applied, c.states = c.charges[:0], c.applied[:0], c.states[:0]
				if err := c.addFor(l, requests[next], p); err != nil {
					b.Fatal(err)
				}
				next = (next + 1) % len(requests)
			}
		})
	}
}
