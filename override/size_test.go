package override_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
)

const many = 10_000

// manyKept keeps the overrides of 10,000 keys.
func manyKept(t testing.TB, values store.Values) {
	t.Helper()
	for i := range many {
		text := fmt.Sprintf(`{"limit":"%d/1m burst 20","until":"2034-11-27T17:00:00Z","was":"60/1m burst 10","by":"alice@example.com","why":"launch %d"}`, 120+i%400, i)
		v := store.Value{Name: fmt.Sprintf("api member:%08d", i), Text: text, Version: store.AnyVersion, Until: time.Date(2034, 12, 27, 17, 0, 0, 0, time.UTC)}
		if _, _, err := values.WriteValue(t.Context(), "overrides", v); err != nil {
			t.Fatal(err)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A replica holds the values and what the Limiter makes of them.
func TestTenThousandOverridesTakeAtMostFiveMegabytes(t *testing.T) {
	k := newKeeper(t)
	manyKept(t, k)
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60).WithBurst(10))}}))
	before := heap()
	s, err := override.Watch(t.Context(), l, k, override.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.List(nil)); n != many+1 {
		t.Errorf("%d entries", n)
	}
	took := float64(heap()-before) / 1e6
	t.Logf("%.2f MB", took)
	if took > 5 {
		t.Errorf("%.2f MB", took)
	}
	runtime.KeepAlive(s)
}

// full has as many values as there may be.
type full struct{ *keeper }

func (full) ReadValues(context.Context, string, store.Value) (store.ValueChanges, error) {
	changes := store.ValueChanges{Now: time.Now(), All: true}
	for i := range 100_000 {
		changes.Values = append(changes.Values, store.Value{Name: fmt.Sprint("api member:", i), Text: `{"limit":"70/1m","by":"x"}`, Version: int64(i + 1)})
	}
	return changes, nil
}

func TestThereAreAtMost100000Overrides(t *testing.T) {
	k := newKeeper(t)
	r := edit(t, full{k}, map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60)})
	if err := r.Set(t.Context(), ofKey("member:x", "80/1m", time.Time{})); !errors.Is(err, override.ErrRefused) || !strings.Contains(err.Error(), "must be at most 100000") {
		t.Error(err)
	}
	if err := r.Set(t.Context(), ofKey("member:7", "80/1m", time.Time{})); !errors.Is(err, override.ErrConflict) || k.writes != 1 { // the keeper has none
		t.Errorf("%v, %d writes", err, k.writes)
	}
}

// BenchmarkSet measures a change among 10,000 overrides: two looks, the write, and that the Limiter has it.
func BenchmarkSet(b *testing.B) {
	k := newKeeper(b)
	manyKept(b, k)
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60).WithBurst(10))}}))
	s, err := override.Watch(b.Context(), l, k, override.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if err := s.Set(b.Context(), ofKey(fmt.Sprintf("member:%08d", i%many), "240/1m burst 40", time.Time{})); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList measures what the page reads of 10,000 overrides.
func BenchmarkList(b *testing.B) {
	k := newKeeper(b)
	manyKept(b, k)
	s := edit(b, k, map[string]ratelimit.Limit{"api": ratelimit.PerMinute(60)})
	for b.Loop() {
		if n := len(s.List(nil)); n != many+1 {
			b.Fatal(n)
		}
	}
}
