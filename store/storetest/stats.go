package storetest

import (
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// RunDecorator tests that a decorator reports the Stats of the Store that it wraps, and one other part. wrap returns the
// decorator over inner. inner answers no calls. It is no [store.StatsReporter], but wraps one.
func RunDecorator(t *testing.T, wrap func(t *testing.T, inner store.Store) store.Store) {
	want, got := reflect.ValueOf(reporter{}.Stats()), reflect.ValueOf(store.StatsOf(wrap(t, foreign{reporter{}})))
	own := 0
	for i := range want.NumField() {
		if got.Field(i).Kind() == reflect.Pointer && got.Field(i).IsNil() {
			t.Errorf("%s is nil", want.Type().Field(i).Name)
		} else if !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
			own++
		}
	}
	if own != 1 {
		t.Errorf("%d parts of the Stats are others than those of what is wrapped, want 1: that of the decorator", own)
	}
}

type reporter struct{ store.Store } // with all parts of Stats

func (reporter) Stats() store.Stats {
	return store.Stats{
		Redis: &store.RedisStats{Calls: 11}, Denials: &store.DenialStats{Answered: 12}, Leases: &store.LeaseStats{Drawn: 13},
		Fallback: &store.FallbackStats{Probes: 14}, Memory: &store.MemoryStats{Buckets: 15},
		Slots: &store.SlotStats{Held: map[string]int64{"p": 16}, Lost: map[string]int64{"p": 17}},
	}
}

type foreign struct{ store.Store } // a decorator that knows nothing of Stats

func (f foreign) Unwrap() store.Store { return f.Store }

// statsRules are those of a StatsReporter.
var statsRules = []rule{
	{"Stats tell of blocked buckets that are kept in memory", on(hour, 5, allow(1, 4), kept(1, 0),
		locking(minute), by("locked"), allow(5, 0), kept(2, 1), shift(minute), kept(2, 0),
		blocking(by("k"), block(hour), kept(2, 1), block(0), kept(2, 0)))},
	{"Stats can be read while calls are made, may be changed, and their counts only grow", func(r *rig) {
		limit, last := r.limit(1, hour, 20), make(map[string]int64)
		var mu sync.Mutex
		r.hammer(8, 100, func(i int) []store.Charge {
			mu.Lock()
			defer mu.Unlock()
			s := r.store.(store.StatsReporter).Stats()
			for name, n := range counts("", reflect.ValueOf(&s).Elem()) {
				if n < last[name] {
					r.Errorf("%s fell from %d to %d", name, last[name], n)
				}
				last[name] = n
			}
			c := store.Charge{Policy: "p" + string(rune('A'+i%5)), Key: "k" + string(rune('A'+i%7)), Limit: limit, Cost: []int64{1, 1, 1, 1, 1, -2, 1, store.Reset}[i%8]}
			if i%11 == 0 && c.Cost > 0 {
				c.Lock = minute
			}
			return []store.Charge{c}
		})
	}},
}

// kept checks how many buckets a Store keeps in memory, if it does.
func kept(buckets, blocked int) step {
	return func(b *bucket) {
		m := b.store.(store.StatsReporter).Stats().Memory
		if m != nil && (m.Buckets != buckets || m.Blocked != blocked || m.Bytes <= 0 || m.Max < buckets) {
			b.Fatalf("%+v, want %d buckets, and %d of them blocked", m, buckets, blocked)
		}
	}
}

// counts returns what only grows in v, and sets it to a value below all.
func counts(path string, v reflect.Value) map[string]int64 {
	all := make(map[string]int64)
	switch v = reflect.Indirect(v); v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Held" && f.Name != "Bytes" { // which are levels
				maps.Copy(all, counts(path+"."+f.Name, v.Field(i)))
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			all[path+"."+key.String()] = v.MapIndex(key).Int()
			v.SetMapIndex(key, reflect.ValueOf(int64(-1)))
		}
	case reflect.Slice:
		v.Clear()
	case reflect.Int64:
		if v.Type() != reflect.TypeFor[time.Duration]() {
			all[path] = v.Int()
			v.SetInt(-1)
		}
	}
	return all
}
