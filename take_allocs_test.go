package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
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
