package store

import (
	"context"
	"errors"
)

// ErrAway is in the error of a Take under WithoutStandIn while the primary of a fallback is unavailable, with the reason
// for which it was given up. Nothing was charged.
var ErrAway = errors.New("store: the primary is away")

type standInKey struct{}

// WithoutStandIn returns a ctx under which no stand-in answers a call, or is charged for it: if the store that it stands
// in for is unavailable or fails, the call fails, too. It is for requests that are refused then, as by FailClosed.
func WithoutStandIn(ctx context.Context) context.Context {
	return context.WithValue(ctx, standInKey{}, true)
}

// MayStandIn reports whether a Store may have another one answer a call with ctx: false under WithoutStandIn. A Store
// that never does so need not call it.
func MayStandIn(ctx context.Context) bool { return ctx.Value(standInKey{}) == nil }
