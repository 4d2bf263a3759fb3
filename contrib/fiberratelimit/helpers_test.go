package fiberratelimit_test

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

// everything is a store that allows everything.
var everything = storeFunc(func([]store.Charge) bool { return true })

type storeFunc func([]store.Charge) bool

func (f storeFunc) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok := f(charges)
	for i := range states {
		states[i] = store.State{Allowed: ok, Remaining: 9}
	}
	return ok, nil
}
