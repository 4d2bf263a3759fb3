package ratelimit_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A call that waits, or is settled later, goes on until it is answered. Calls are reused, and the next one may end with
// the deadline of its request.
func TestARequestEndsWithItsDeadlineAfterOneThatStayed(t *testing.T) {
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
					arrive(q.Limit(plain)(okHandler), ctx).want(t, http.StatusServiceUnavailable, 20*time.Millisecond)
					cancel()
				}
			})
		})
	}
}

func TestOnlyAPeekSaysThatABucketIsUsed(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerHour(1000)}
	for i := range 20 { // the pool may lose some
		if r, err := l.Take(t.Context(), p, "member:5", 1); r.Used || err != nil {
			t.Errorf("Take: %+v, error %v", r, err)
		}
		if r, err := l.Peek(t.Context(), p, "member:5"); !r.Used || r.Remaining != int64(999-i) || err != nil {
			t.Errorf("Peek: %+v, error %v", r, err)
		}
	}
}
