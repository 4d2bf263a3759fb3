package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
	"github.com/go-tokenbucket/ratelimit/store"
)

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

// A Take allocates what becomes of the decision, and nothing for its policy or its deadline.
func TestATakeAllocatesOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerSecond(1_000_000)}
	for name, cfg := range map[string]ratelimit.Config{"memory": {}, "a store that asks for the deadline": {Store: prompt{}}} {
		l := newLimiter(t, cfg)
		take := func() {
			if r, err := l.Take(ctx, p, "member:5", 1); !r.Allowed || err != nil {
				t.Errorf("%s: %+v, error %v", name, r, err)
			}
		}
		// It is one, and another on average with the race detector, which has pools lose some of what is put into them.
		if n := testing.AllocsPerRun(1000, take); n > 2 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// A TakeAll allocates what becomes of the decision and its results, and nothing for its policies.
func TestATakeAllAllocatesTwice(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	charges := []ratelimit.Charge{
		{Policy: ratelimit.Policy{Name: "user", Limit: ratelimit.PerSecond(1_000_000)}, Key: "member:5"},
		{Policy: ratelimit.Policy{Name: "org", Limit: ratelimit.PerMinute(1_000_000)}, Key: "org:7"},
	}
	l := newLimiter(t, ratelimit.Config{Store: prompt{}})
	take := func() {
		if d, err := l.TakeAll(ctx, charges...); !d.Allowed || len(d.Results) != 2 || err != nil {
			t.Errorf("%+v, error %v", d, err)
		}
	}
	most := 2.0
	if len(testbuild.Flags()) > 0 { // the race detector has pools lose some of what is put into them
		most = 6
	}
	if n := testing.AllocsPerRun(1000, take); n > most {
		t.Errorf("%v allocations", n)
	}
}
