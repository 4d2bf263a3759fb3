// Package virtualtime lets simulated requests wait for their tokens without waiting.
package virtualtime

import (
	"context"
	"time"
)

type sleepKey struct{}

// With returns a context for requests that wait for their tokens in virtual time, which passes in sleep. A request that is
// explained must not have it, because functions of the program may wait with its context for tokens that they have taken.
func With(ctx context.Context, sleep func(time.Duration)) context.Context {
	return context.WithValue(ctx, sleepKey{}, sleep)
}

// Sleep waits for d in virtual time. It returns false at once if requests with ctx wait in real time.
func Sleep(ctx context.Context, d time.Duration) bool {
	sleep, ok := ctx.Value(sleepKey{}).(func(time.Duration))
	if ok {
		sleep(d)
	}
	return ok
}
