// Package observe has observers for [ratelimit.Config.Observe].
package observe

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
)

// Join returns an observer that calls all of observers, in their order. It panics without observers, and if one is nil.
func Join(observers ...func(context.Context, *ratelimit.Event)) func(context.Context, *ratelimit.Event) {
	if len(observers) == 0 {
		panic("observe: Join: observers: must have at least one")
	}
	for i, o := range observers {
		if o == nil {
			panic(fmt.Sprintf("observe: Join: observers: number %d must not be nil", i+1))
		}
	}
	observers = slices.Clone(observers)
	return func(ctx context.Context, e *ratelimit.Event) {
		for _, o := range observers {
			o(ctx, e)
		}
	}
}
