package main

import (
	"context"
	"time"
)

// The timeouts of a call are far longer than a call takes, so that none fails because the machine is busy. That of the
// Limiter is the shorter one, as its default is shorter than what most requests may take: it then ends the decision
// by a deadline of its own, which costs the same for any timeout.
const (
	callTimeout    = 10 * time.Second
	limiterTimeout = 5 * time.Second
)

// ownContexts makes next's functions make a context for each call, as net/http does for each request. It is one that
// can be cancelled: a timer for each call would take more time than the calls that are measured.
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
