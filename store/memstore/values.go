package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// valueSets are the sets of values by name. Calls for them are rare, so that one lock and a look at each value will do.
type valueSets struct {
	mu  sync.Mutex
	all map[string]*valueSet
}

type valueSet struct {
	values map[string]store.Value
	last   int64 // the highest version so far
}

// ReadValues implements [store.Values]. It does not wait. Its errors are those of Take.
func (s *Store) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	if err := store.ValidateAfter(set, after); err != nil {
		return store.ValueChanges{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.ValueChanges{}, fmt.Errorf("memstore: %w", err)
	}
	now := time.UnixMicro(s.now())
	s.values.mu.Lock()
	defer s.values.mu.Unlock()
	values := s.values.at(set, now).values
	changes := store.ValueChanges{Now: now}
	if known, ok := values[after.Name]; after.Version == 0 || !ok || known.Version < after.Version {
		after, changes.All = store.Value{}, true
	}
	for _, v := range values {
		if v.Version > after.Version {
			changes.Values = append(changes.Values, v)
		}
	}
	slices.SortFunc(changes.Values, func(a, b store.Value) int { return cmp.Compare(a.Version, b.Version) })
	return changes, nil
}

// WriteValue implements [store.Values]. It does not wait. Its errors are those of Take.
func (s *Store) WriteValue(ctx context.Context, set string, v store.Value) (now store.Value, written bool, err error) {
	if err := store.ValidateValue(set, v); err != nil {
		return store.Value{}, false, err
	}
	if err := ctx.Err(); err != nil {
		return store.Value{}, false, fmt.Errorf("memstore: %w", err)
	}
	at := s.now()
	s.values.mu.Lock()
	defer s.values.mu.Unlock()
	kept := s.values.at(set, time.UnixMicro(at))
	known := kept.values[v.Name]
	if v.Version != store.AnyVersion && v.Version != known.Version {
		known.Name = v.Name
		return known, false, nil
	}
	v.Name, v.Text = strings.Clone(v.Name), strings.Clone(v.Text)
	v.Version = max(at, kept.last+1)
	if !v.Until.IsZero() {
		v.Until = time.UnixMicro(v.Until.Add(time.Microsecond - 1).UnixMicro())
	}
	kept.values[v.Name], kept.last = v, v.Version
	if s.values.all == nil {
		s.values.all = make(map[string]*valueSet)
	}
	s.values.all[strings.Clone(set)] = kept
	return v, true, nil
}

// at returns a set without the values that have ended at the time now. A set without a value is not kept.
func (s *valueSets) at(name string, now time.Time) *valueSet {
	set := s.all[name]
	if set == nil {
		return &valueSet{values: make(map[string]store.Value)}
	}
	maps.DeleteFunc(set.values, func(_ string, v store.Value) bool { return !v.Until.IsZero() && !now.Before(v.Until) })
	return set
}
