package denialcache

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

var _ store.Values = (*Store)(nil)

// ReadValues implements [store.Values]. It calls the Store passed to [New].
func (d *Store) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	return store.ReadValues(ctx, d.store, set, after)
}

// WriteValue implements [store.Values]. It calls the Store passed to [New].
func (d *Store) WriteValue(ctx context.Context, set string, v store.Value) (now store.Value, written bool, err error) {
	return store.WriteValue(ctx, d.store, set, v)
}
