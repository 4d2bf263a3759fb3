package store

import (
	"context"
	"errors"
)

// ErrAway is wrapped by the error of a Take under [WithoutStandIn] while the primary of a fallback is unavailable.
// The error also wraps the reason for which the primary was given up. Nothing was charged.
var ErrAway = errors.New("store: the primary is unavailable")

type standInKey struct{}

// WithoutStandIn returns a context under which no stand-in answers a call or is charged for it. If the real store
// is unavailable or fails, the call fails, too. [github.com/go-tokenbucket/ratelimit.Policy.FailClosed] uses it.
func WithoutStandIn(ctx context.Context) context.Context {
	return context.WithValue(ctx, standInKey{}, true)
}

// MayStandIn reports whether a stand-in may answer a call with ctx. It is false under [WithoutStandIn]. A Store
// without a stand-in need not call it.
func MayStandIn(ctx context.Context) bool { return ctx.Value(standInKey{}) == nil }
