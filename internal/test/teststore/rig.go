package teststore

import (
	"context"
	"testing"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Rig is a Store under test, and what reaches the one behind it.
type Rig struct {
	*testing.T
	Store  store.Store
	Behind *Counted
}

// Take makes a call that must not fail, and reports whether the store behind was asked.
func (r *Rig) Take(charges ...store.Charge) (ok bool, states []store.State, asked bool) {
	r.Helper()
	calls := r.Behind.Calls.Load()
	states = make([]store.State, len(charges))
	ok, err := r.Store.Take(context.Background(), charges, states)
	if err != nil {
		r.Fatal(err)
	}
	return ok, states, r.Behind.Calls.Load() != calls
}

// Asks makes a call that must be put to the store behind, and returns its first state.
func (r *Rig) Asks(charges ...store.Charge) store.State {
	r.Helper()
	_, states, asked := r.Take(charges...)
	if !asked {
		r.Fatalf("the store was not asked about %+v", charges)
	}
	return states[0]
}

func (r *Rig) Want(got, want store.State) {
	r.Helper()
	if got != want {
		r.Fatalf("state is\n\t%+v, want\n\t%+v", got, want)
	}
}
