package fallback_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// A valued is a primary with sets of values, which may fail apart from its buckets.
type valued struct {
	*teststore.Faulty
	store.Values
	err error
}

func (v *valued) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	if v.err != nil {
		return store.ValueChanges{}, v.err
	}
	return v.Values.ReadValues(ctx, set, after)
}

// Values are those of the primary, which also fails their calls, whether it is given up or not. Such failures do not count
// against it.
func TestValuesAreThoseOfThePrimary(t *testing.T) {
	memory := teststore.OpenMemory(t, nil)
	primary := &valued{Faulty: &teststore.Faulty{Store: memory}, Values: memory.(store.Values)}
	f := openFallback(t, primary, fallback.Config{Failures: 1, ProbeEvery: time.Hour})
	for _, away := range []bool{false, true} {
		if away {
			primary.Have(teststore.Broken)
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, 1, time.Second, 1)}
			if _, err := f.Take(t.Context(), []store.Charge{c}, make([]store.State, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if (f.Away() != nil) != away {
			t.Fatalf("away: %v, want %t", f.Away(), away)
		}
		if _, written, err := f.WriteValue(t.Context(), "s", store.Value{Name: "v", Version: store.AnyVersion}); !written || err != nil {
			t.Errorf("written %t, error %v", written, err)
		}
		if got, err := f.ReadValues(t.Context(), "s", store.Value{}); len(got.Values) != 1 || err != nil {
			t.Errorf("%+v, error %v", got, err)
		}
		primary.err = errors.New("no values")
		for range 20 {
			if _, err := f.ReadValues(t.Context(), "s", store.Value{}); err != primary.err {
				t.Errorf("error %v, want that of the primary", err)
			}
		}
		primary.err = nil
	}
}
