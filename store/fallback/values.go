package fallback

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/store"
)

var _ store.Values = (*Store)(nil)

// ReadValues implements [store.Values]. It calls the primary, also while that is given up: the secondary has no values.
func (f *Store) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	return store.ReadValues(ctx, f.primary, set, after)
}

// WriteValue implements [store.Values]. It calls the primary, also while that is given up: the secondary has no values.
func (f *Store) WriteValue(ctx context.Context, set string, v store.Value) (now store.Value, written bool, err error) {
	return store.WriteValue(ctx, f.primary, set, v)
}
