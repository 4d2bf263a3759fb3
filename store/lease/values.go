package lease

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

var _ store.Values = (*Store)(nil)

// ReadValues implements [store.Values]. It calls the Store passed to [New].
func (s *Store) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	return store.ReadValues(ctx, s.store, set, after)
}

// WriteValue implements [store.Values]. It calls the Store passed to [New].
func (s *Store) WriteValue(ctx context.Context, set string, v store.Value) (now store.Value, written bool, err error) {
	return store.WriteValue(ctx, s.store, set, v)
}
