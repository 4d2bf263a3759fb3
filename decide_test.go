package ratelimit_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A call that waits, or is settled later, goes on until it is answered. Calls are reused, and the next one may end with its
// context.
func TestACallEndsWithItsContextAfterOneThatStayed(t *testing.T) {
	plain := perIP("plain", ratelimit.PerHour(1))
	for name, before := range map[string]ratelimit.Policy{
		"waits":   waiting(perIP("api", ratelimit.PerHour(1)), time.Minute),
		"settles": settled("api", ratelimit.PerHour(1), asCharged),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Store: stalling{}}, func(t *testing.T, q *queue) {
				for range 20 { // the pool may lose some
					get(q.Limit(before)(okHandler))
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					arrive(q.Limit(plain)(okHandler), ctx).Want(t, http.StatusServiceUnavailable, 20*time.Millisecond)
					cancel()

					get(q.Limit(before)(okHandler))
					ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
					begin := time.Now()
					if _, err := q.Take(ctx, plain, address, 1); err == nil || time.Since(begin) != time.Millisecond {
						t.Errorf("error %v after %v, want the context's after 1ms", err, time.Since(begin))
					}
					cancel()
				}
			})
		})
	}
}

// A call is compiled for its own limit, not for that of the call before.
func TestATakeGoesByItsOwnLimit(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	take := func(key string, limit ratelimit.Limit) (ratelimit.Result, error) {
		return l.Take(t.Context(), ratelimit.Policy{Name: "jobs", Limit: limit}, key, 1)
	}
	for range 20 { // the pool may lose some
		for key, burst := range map[string]int64{"member:5": 1000, "member:6": 2000} {
			if r, err := take(key, ratelimit.PerHour(1).WithBurst(burst)); r.Remaining/1000 != burst/1000-1 || err != nil {
				t.Errorf("a burst of %d: %+v, error %v", burst, r, err)
			}
		}
		for _, wrong := range []ratelimit.Limit{{}, {Rate: -1, Per: time.Second}} {
			if r, err := take("member:5", wrong); r.Allowed || err == nil {
				t.Errorf("limit %+v: %+v", wrong, r)
			}
		}
		if r, err := take("member:5", ratelimit.Unlimited); !r.Allowed || err != nil {
			t.Errorf("Unlimited: %+v, error %v", r, err)
		}
	}
}
