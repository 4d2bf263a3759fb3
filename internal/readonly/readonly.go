// Package readonly marks calls of a store that must write nothing, because they are for an explanation. A decorator that
// would write something to give an exact answer reads it instead.
package readonly

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

type chargeKey struct{}

// With returns a context for an Inspect or a Take with a Cost of 0 that must write nothing. c is the charge for which the
// bucket is looked at.
func With(ctx context.Context, c *store.Charge) context.Context {
	return context.WithValue(ctx, chargeKey{}, c)
}

// For returns the charge for which a call with ctx looks at its bucket, nil for all other calls. A store that charges
// the bucket under another limit now returns a Bucket under that limit.
func For(ctx context.Context) *store.Charge {
	c, _ := ctx.Value(chargeKey{}).(*store.Charge)
	return c
}
