package main

import (
	"context"
	"time"
)

// The timeouts of a call are much longer than a call, so that no call fails on a busy machine. The timeout of the
// Limiter is the shorter one, as its default is shorter than that of most requests. So the Limiter sets its own
// deadline, which costs the same for any timeout.
const (
	callTimeout    = 10 * time.Second
	limiterTimeout = 5 * time.Second
)

// ownContexts makes the functions of next create a context for each call, as net/http does for each request. It can
// be cancelled. It has no timer, because a timer would take longer than the measured calls.
func ownContexts(next func() takeFunc) func() takeFunc {
	return func() takeFunc {
		take := next()
		return func(ctx context.Context, key string) (bool, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return take(ctx, key)
		}
	}
}
