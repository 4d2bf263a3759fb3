package ratetest

import (
	"context"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A StoreFunc is a Store that never fails.
type StoreFunc func([]store.Charge, []store.State) bool

func (f StoreFunc) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	return f(charges, states), nil
}

// Failing is a Store that fails.
type Failing func() error

func (f Failing) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, f()
}

func (f Failing) Block(context.Context, string, string, store.Block) (bool, error) { return false, f() }

// Generous is a Store that allows everything, and can do nothing else.
type Generous struct{}

func (Generous) Take(_ context.Context, _ []store.Charge, states []store.State) (bool, error) {
	return Allow(states), nil
}

// Allow fills states with those of buckets that allow.
func Allow(states []store.State) bool {
	for i := range states {
		states[i] = store.State{Allowed: true}
	}
	return true
}

// Bare hides what a Store can do besides Take.
type Bare struct{ store.Store }

// StandIn returns s, whose answers are then those of a stand-in.
func StandIn(s store.Store) store.Store { return standIn{s} }

// A standIn is a Store whose answers are a stand-in's.
type standIn struct{ store.Store }

func (d standIn) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := d.Store.Take(ctx, charges, states)
	for i := range states {
		states[i].Degraded = true
	}
	return ok, err
}

// Denying returns a Store that denies everything for so long.
func Denying(after time.Duration) store.Store {
	return StoreFunc(func(_ []store.Charge, states []store.State) bool {
		for i := range states {
			states[i] = store.State{RetryAfter: after, ResetAfter: time.Minute}
		}
		return false
	})
}
